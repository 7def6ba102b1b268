import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own client does one deed: SERVERS DEED TOPIC [...], as programs.py says. */
public class JavaClient {
    private static final Duration POLL = Duration.ofMillis(500);

    public static void main(String[] args) throws Exception {
        String servers = args[0], topic = args[2];
        switch (args[1]) {
            case "produce" -> produce(servers, topic, false);
            case "idempotent" -> produce(servers, topic, true);
            case "consume" -> consume(servers, topic, args[3], Integer.parseInt(args[4]));
            case "since" -> since(servers, topic, Long.parseLong(args[3]));
            case "transact" -> transact(servers, topic, Integer.parseInt(args[3]));
            case "create" -> create(servers, topic, Integer.parseInt(args[3]));
            default -> throw new IllegalArgumentException(args[1]);
        }
    }

    /** Lines of stdin become records, as with kafka-console-producer. */
    private static void produce(String servers, String topic, boolean idempotent) throws Exception {
        Properties settings = settings(servers);
        settings.put("enable.idempotence", String.valueOf(idempotent));
        try (KafkaProducer<String, String> producer = producer(settings)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : values()) sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
            for (Future<RecordMetadata> each : sent) each.get();
        }
    }

    /** Records become lines of stdout, as with kafka-console-consumer. */
    private static void consume(String servers, String topic, String group, int count) {
        Properties settings = settings(servers);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.records", String.valueOf(count));
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            consumer.subscribe(List.of(topic));
            int found = 0;
            while (found < count) {
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    System.out.println(each.value());
                    found++;
                }
            }
            consumer.commitSync();
        }
    }

    private static void since(String servers, String topic, long time) {
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(settings(servers))) {
            consumer.assign(List.of(place));
            consumer.seek(place, consumer.offsetsForTimes(Map.of(place, time)).get(place).offset());
            while (true) {
                for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                    System.out.println(each.value());
                    return;
                }
            }
        }
    }

    private static void transact(String servers, String topic, int aborted) throws Exception {
        Properties settings = settings(servers);
        settings.put("transactional.id", "java-" + topic);
        List<String> values = values();
        try (KafkaProducer<String, String> producer = producer(settings)) {
            producer.initTransactions();
            producer.beginTransaction();
            for (String value : values.subList(0, aborted)) producer.send(new ProducerRecord<>(topic, 0, null, value));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            for (String value : values.subList(aborted, values.size())) {
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
            producer.commitTransaction();
        }
    }

    private static void create(String servers, String topic, int partitions) throws Exception {
        try (Admin admin = Admin.create(settings(servers))) {
            admin.createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()))).all().get();
            System.out.println(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        }
    }

    private static List<String> values() throws Exception {
        return new BufferedReader(new InputStreamReader(System.in)).lines().toList();
    }

    private static KafkaProducer<String, String> producer(Properties settings) {
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static KafkaConsumer<String, String> consumer(Properties settings) {
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static Properties settings(String servers) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        return settings;
    }
}
