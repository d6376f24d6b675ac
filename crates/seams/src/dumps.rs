//! Core dumps: a process that holds secrets leaves no image of its memory behind.

use std::io;

use rustix::process::{Resource, Rlimit, setrlimit};

/// From now on the process leaves no core dump, and on Linux no other process of the same user may read its memory.
///
/// # Errors
///
/// What the system says, if it does not allow that.
pub fn no_core_dumps() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use rustix::process::{DumpableBehavior, dumpable_behavior, getrlimit};

    use super::*;

    const CHILD: &str = "CASTLE_TEST_ABORTS";

    /// Goal: a process that aborts leaves nothing. Method: this test once more in a child, whose own limit is as high as it
    /// may be, in a folder of its own; it aborts, and both the system and the folder tell of no dump.
    #[test]
    fn a_process_that_aborts_leaves_no_dump() {
        if std::env::var_os(CHILD).is_some() {
            let limit = getrlimit(Resource::Core);
            setrlimit(Resource::Core, Rlimit { current: limit.maximum, ..limit }).unwrap();
            no_core_dumps().unwrap();
            let limit = getrlimit(Resource::Core);
            assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
            assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
            std::process::abort();
        }
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dumps::tests::a_process_that_aborts_leaves_no_dump"])
            .env(CHILD, "1")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(child.status.signal().is_some(), "{}", String::from_utf8_lossy(&child.stdout));
        assert!(!child.status.core_dumped());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
