import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.ServerVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/** mongo-java-server in memory, on the port that is the argument. */
public final class MongoNode {
    public static void main(String[] words) throws Exception {
        new MongoServer(new MemoryBackend().version(ServerVersion.MONGO_5_0)).bind("127.0.0.1", Integer.parseInt(words[0]));
        System.out.println("the server is listening");
        Thread.currentThread().join();
    }
}
