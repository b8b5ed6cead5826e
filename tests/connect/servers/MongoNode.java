import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** mongo-java-server in memory, on the port that is the argument. */
public final class MongoNode {
    /** What the driver asks for at least. The server would say 8, and speaks the messages of 9 as well. */
    private static final class Version implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(4, 4, 0);
        }

        @Override
        public int getWireVersion() {
            return 9;
        }
    }

    public static void main(String[] words) throws Exception {
        new MongoServer(new MemoryBackend().version(new Version())).bind("127.0.0.1", Integer.parseInt(words[0]));
        System.out.println("the server is listening");
        Thread.currentThread().join();
    }
}
