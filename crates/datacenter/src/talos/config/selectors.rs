//! Expressions that select disks, volumes and links: whether what they speak of exists.

/// The parts of a disk.
const DISK: [&str; 18] = [
    "size",
    "io_size",
    "sector_size",
    "readonly",
    "model",
    "serial",
    "modalias",
    "wwid",
    "bus_path",
    "sub_system",
    "transport",
    "rotational",
    "cdrom",
    "dev_path",
    "pretty_size",
    "secondary_disks",
    "uuid",
    "symlinks",
];

/// The parts of a link.
const LINK: [&str; 33] = [
    "index",
    "type",
    "link_index",
    "flags",
    "hardware_addr",
    "broadcast_addr",
    "mtu",
    "queue_disc",
    "master_index",
    "operational_state",
    "kind",
    "slave_kind",
    "bus_path",
    "pciid",
    "driver",
    "driver_version",
    "firmware_version",
    "product_id",
    "vendor_id",
    "product",
    "vendor",
    "link_state",
    "speed_megabits",
    "port",
    "duplex",
    "vlan",
    "bridge_master",
    "bond_master",
    "wireguard",
    "permanent_addr",
    "alias",
    "alt_names",
    "vrf_master",
];

/// What an expression may speak of: names, and the parts of those that have some.
type Names = &'static [(&'static str, &'static [&'static str])];

/// What is there where disks are selected. Units of size are names, too.
pub(super) const DISKS: Names = &[
    ("disk", &DISK),
    ("system_disk", &[]),
    ("KiB", &[]),
    ("MiB", &[]),
    ("GiB", &[]),
    ("TiB", &[]),
    ("kB", &[]),
    ("MB", &[]),
    ("GB", &[]),
    ("TB", &[]),
];

/// What is there where links are selected.
pub(super) const LINKS: Names = &[("link", &LINK)];

/// Words that are no names.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// What is wrong with an expression, in the words of the vendor's reader.
pub(super) fn fault(expression: &str, names: Names) -> Option<String> {
    let mut quote = None;
    let mut at = 0;
    let letters: Vec<char> = expression.chars().collect();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut of: Option<&'static [&'static str]> = None;
    while let Some(&letter) = letters.get(at) {
        if quote.is_some() || ['"', '\''].contains(&letter) {
            quote = match quote {
                Some(mark) if mark == letter => None,
                None => Some(letter),
                open => open,
            };
            at += 1;
            continue;
        }
        if !letter.is_ascii_alphabetic() && letter != '_' {
            // A number with a unit is no name.
            let skipped = letters[at..].iter().take_while(|next| is_word(**next)).count();
            at += skipped.max(1);
            of = of.filter(|_| letter == '.');
            continue;
        }
        let end = at + letters[at..].iter().take_while(|next| is_word(**next)).count();
        let word: String = letters[at..end].iter().collect();
        let is_part = at > 0 && letters[at - 1] == '.';
        let is_call = letters.get(end) == Some(&'(');
        match of.take().filter(|_| is_part) {
            Some(parts) if !is_call && !parts.contains(&word.as_str()) => {
                return Some(told(expression, at - 1, &format!("undefined field '{word}'")));
            }
            _ if is_part || is_call || WORDS.contains(&word.as_str()) => {}
            _ => match names.iter().find(|(name, _)| *name == word) {
                Some((_, parts)) => of = Some(parts).filter(|parts| !parts.is_empty()).copied(),
                None => {
                    let why = format!("undeclared reference to '{word}' (in container '')");
                    return Some(told(expression, at, &why));
                }
            },
        }
        at = end;
    }
    None
}

/// A mistake and where it is.
fn told(expression: &str, at: usize, why: &str) -> String {
    format!("ERROR: <input>:1:{}: {why}\n | {expression}\n | {}^", at + 1, ".".repeat(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spoken_of_must_exist() {
        for (expression, names) in [
            ("!system_disk", DISKS),
            ("disk.size > 10u * GiB && disk.transport == 'nvme'", DISKS),
            ("disk.serial == \"disk.nope\"", DISKS),
            ("'/dev/disk/by-id/x' in disk.symlinks", DISKS),
            ("glob(\"eth*\", link.alias)", LINKS),
            ("mac(link.permanent_addr) == \"bc:24:11:00:00:01\"", LINKS),
            ("true", LINKS),
        ] {
            assert_eq!(fault(expression, names), None, "{expression}");
        }
        let told = fault("disk.nope > 1", DISKS).unwrap();
        assert_eq!(told, "ERROR: <input>:1:5: undefined field 'nope'\n | disk.nope > 1\n | ....^");
        let told = fault("mac(link.nope) == \"x\"", LINKS).unwrap();
        assert_eq!(told, "ERROR: <input>:1:9: undefined field 'nope'\n | mac(link.nope) == \"x\"\n | ........^");
        assert!(fault("disc.size > 1u", DISKS).unwrap().contains("undeclared reference to 'disc'"));
        assert!(fault("disk.size > 1u", LINKS).is_some());
    }
}
