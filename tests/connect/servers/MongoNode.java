import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** Runs mongo-java-server in memory on the port that is its argument. */
public final class MongoNode {
    /** The least wire version that the driver accepts: the server would announce 8, but understands 9 as well. */
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
