import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Properties;

/** Debezium's engine without Connect: it appends each change's value to a file, as a line. Settings come from a file. */
public class Engine {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            settings.load(reader);
        }
        Path notes = Path.of(arguments[1]);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .using((isSuccess, message, error) -> System.err.println("ended: " + message + ", " + error))
            .notifying(event -> append(notes, event.value()))
            .build();
        engine.run();
    }

    private static void append(Path notes, String line) {
        try {
            Files.writeString(notes, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (java.io.IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
