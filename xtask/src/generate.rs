//! Files that are made of others, and committed. That they are fresh is tested: of the schema by castle itself, of the words of Talos here.

mod words;

use anyhow::Result;

use crate::shell;

pub(crate) fn run() -> Result<()> {
    for file in words::write()? {
        println!("wrote {file}");
    }
    let castle = shell::castle()?;
    for (file, args) in
        [("schemas/castle.schema.json", &["schema"][..]), ("docs/castle-yaml.md", &["schema", "--reference"])]
    {
        std::fs::write(shell::root().join(file), shell::output(shell::program(&castle).args(args))?)?;
        println!("wrote {file}");
    }
    Ok(())
}
