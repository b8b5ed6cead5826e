package pessoa;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The processing log of ksql's queries that Spark's own operators run: lines of Spark's log. The methods stand in the
 * condition of a filter, and their answer is whether the row goes on.
 */
public final class ProcessingLog {
    private static final Logger LOG = LoggerFactory.getLogger("processing");

    private ProcessingLog() {}

    /** Logs what became null in a row. */
    public static boolean note(String entry) {
        LOG.warn("{}", entry);
        return true;
    }

    /** Logs why a record is skipped. */
    public static boolean skip(String entry) {
        LOG.warn("{}", entry);
        return false;
    }
}
