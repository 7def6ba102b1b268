import java.io.FileWriter;
import java.io.PrintWriter;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Accepts each record after it has noted it: SERVERS GROUP TOPIC FILE, until it is killed. */
public class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "20");
        settings.put("metadata.recovery.rebootstrap.trigger.ms", "2000");
        settings.put("default.api.timeout.ms", "10000");
        settings.put("request.timeout.ms", "5000");
        try (PrintWriter notes = new PrintWriter(new FileWriter(arguments[3], true), true);
                KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                if (error != null) {
                    System.err.println("not acknowledged: " + error);
                }
            });
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                for (ConsumerRecord<String, String> record : records) {
                    boolean isFirst = record.deliveryCount().orElse((short) 1) == 1;
                    if (isFirst && record.value().endsWith("7")) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        notes.println(record.value());
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                }
            }
        }
    }
}
