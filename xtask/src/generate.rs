//! Files made from the types. That they are fresh is a test of castle itself.

use anyhow::Result;

use crate::shell;

pub(crate) fn run() -> Result<()> {
    let castle = shell::castle()?;
    for (file, args) in
        [("schemas/castle.schema.json", &["schema"][..]), ("docs/castle-yaml.md", &["schema", "--reference"])]
    {
        std::fs::write(shell::root().join(file), shell::output(shell::program(&castle).args(args))?)?;
        println!("wrote {file}");
    }
    Ok(())
}
