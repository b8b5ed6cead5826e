// Runs Apache Kafka's tools one after another in one Java process, so that each costs a tenth of a second and not two.
//
// A request is one line: the main class, the files for standard output, standard error and standard input, and the
// arguments, each in Base64, with blanks between them. The answer is one line: the exit code. A tool that ends the
// whole process (argparse4j does, on a usage error) leaves its output in the files and its code as the process's. A
// main class with & before it is one that stays, as a broker does: it gets a thread, and the answer comes at once.
//
// Producers are closed when the process ends, and the verifiable clients say their last words then, so both are called
// for when the tool has ended.
// Java keeps what is to be done then in a private field: hence --add-opens java.base/java.lang=ALL-UNNAMED.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public final class ToolServer {
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static Integer code;

    private static void end(int status) {
        // The first word is the last: what a tool that catches everything says and does after it would not be heard.
        if (code == null) {
            code = status;
            System.out.flush();
            System.err.flush();
            PrintStream discarded = new PrintStream(OutputStream.nullOutputStream());
            System.setOut(discarded);
            System.setErr(discarded);
        }
        throw new Ended();
    }

    public static void main(String[] unused) throws Exception {
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ", -1);
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(Base64.getDecoder().decode(words[i]), StandardCharsets.UTF_8);
            }
            String[] arguments = java.util.Arrays.copyOfRange(words, 4, words.length);
            try (PrintStream out = open(words[1]); PrintStream err = open(words[2]);
                    InputStream in = new FileInputStream(words[3])) {
                System.setOut(out);
                System.setErr(err);
                System.setIn(in);
                code = null;
                if (words[0].startsWith("&")) {
                    stay(words[0].substring(1), arguments);
                    answers.println(0);
                    answers.flush();
                    continue;
                }
                List<Thread> before = atTheEnd();
                run(words[0], arguments, err);
                sayLastWords(before);
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            answers.println(code == null ? 0 : code);
            answers.flush();
        }
        // Who stays would keep the process.
        System.exit(0);
    }

    private static void stay(String name, String[] arguments) throws Exception {
        Method main = Class.forName(name).getMethod("main", String[].class);
        new Thread(() -> {
            try {
                main.invoke(null, (Object) arguments);
            } catch (ReflectiveOperationException ended) {
                // The test that waits for the program finds that it is not there.
                return;
            }
        }, name).start();
    }

    private static void sayLastWords(List<Thread> before) throws Exception {
        for (Thread one : atTheEnd()) {
            if (!before.contains(one)) {
                Runtime.getRuntime().removeShutdownHook(one);
                one.run();
            }
        }
    }

    private static List<Thread> atTheEnd() throws Exception {
        Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        hooks.setAccessible(true);
        List<Thread> found = new ArrayList<>();
        for (Object one : ((Map<?, ?>) hooks.get(null)).keySet()) {
            found.add((Thread) one);
        }
        return found;
    }

    private static PrintStream open(String path) throws Exception {
        return new PrintStream(new FileOutputStream(path), true, StandardCharsets.UTF_8);
    }

    private static void run(String name, String[] arguments, PrintStream err) throws Exception {
        Method main = Class.forName(name).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                // What Java does with an exception that is not caught.
                err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace(err);
                code = code == null ? 1 : code;
            }
        }
    }
}
