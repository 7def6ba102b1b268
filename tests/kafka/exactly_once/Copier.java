import java.io.FileWriter;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** As copier.py: copies a topic to another one in transactions. SERVERS GROUP SOURCE TARGET TRANSACTIONAL_ID FILE */
public class Copier {
    public static void main(String[] args) throws Exception {
        Properties producing = new Properties();
        producing.put("bootstrap.servers", args[0]);
        producing.put("transactional.id", args[4]);
        producing.put("transaction.timeout.ms", "20000");
        producing.put("request.timeout.ms", "10000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        Properties consuming = new Properties();
        consuming.put("bootstrap.servers", args[0]);
        consuming.put("group.id", args[1]);
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        consuming.put("session.timeout.ms", "6000");
        consuming.put("heartbeat.interval.ms", "1000");
        consuming.put("max.poll.records", "100");
        KafkaConsumer<String, String> consumer =
            new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(args[2]));
        try (FileWriter notes = new FileWriter(args[5], true)) {
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (!records.isEmpty()) {
                    notes.write(copy(producer, consumer, records, args[3]) + "\n");
                    notes.flush();
                }
            }
        } catch (Throwable error) {
            System.err.println("fatal: " + error);
            Runtime.getRuntime().halt(1); // as a program that is started again
        }
    }

    private static String copy(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String target) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<String, String> each : records) {
                producer.send(new ProducerRecord<>(target, each.partition(), null, each.value()));
                offsets.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
            }
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            while (true) {
                try {
                    producer.commitTransaction();
                    return "committed";
                } catch (TimeoutException error) {
                    System.err.println("commit again: " + error);
                }
            }
        } catch (KafkaException error) {
            System.err.println("abort: " + error);
            producer.abortTransaction();
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
            for (TopicPartition each : consumer.assignment()) {
                OffsetAndMetadata offset = committed.get(each);
                consumer.seek(each, offset == null ? 0 : offset.offset());
            }
            return "aborted";
        }
    }
}
