package pessoa;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which starts no program to set the permissions of a file. Without its native library
 * Hadoop runs `chmod` for every file that it creates with permissions, and a checkpoint creates several in each batch.
 */
public final class LocalFiles extends LocalFileSystem {
    private static final PosixFilePermission[] BITS = {
        PosixFilePermission.OTHERS_EXECUTE, PosixFilePermission.OTHERS_WRITE, PosixFilePermission.OTHERS_READ,
        PosixFilePermission.GROUP_EXECUTE, PosixFilePermission.GROUP_WRITE, PosixFilePermission.GROUP_READ,
        PosixFilePermission.OWNER_EXECUTE, PosixFilePermission.OWNER_WRITE, PosixFilePermission.OWNER_READ,
    };

    public LocalFiles() {
        super(new Raw());
    }

    private static final class Raw extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            // The sticky bit has no name in Java.
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            Set<PosixFilePermission> wanted = EnumSet.noneOf(PosixFilePermission.class);
            for (int bit = 0; bit < BITS.length; bit++) {
                if ((permission.toShort() >> bit & 1) == 1) {
                    wanted.add(BITS[bit]);
                }
            }
            Files.setPosixFilePermissions(pathToFile(path).toPath(), wanted);
        }
    }
}
