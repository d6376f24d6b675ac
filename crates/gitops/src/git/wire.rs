//! Packets: four hexadecimal digits that tell a length, and what they tell the length of.

use super::GitError;

/// One packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Packet<'p> {
    Data(&'p [u8]),
    /// The end of a message.
    Flush,
    /// The end of a section.
    Delimiter,
}

impl<'p> Packet<'p> {
    /// A line of text, without its end.
    pub(super) fn line(&self) -> Option<&'p [u8]> {
        match self {
            Self::Data(data) => Some(data.trim_ascii_end()),
            Self::Flush | Self::Delimiter => None,
        }
    }
}

/// All packets of an answer.
pub(super) fn packets(mut body: &[u8]) -> Result<Vec<Packet<'_>>, GitError> {
    const CUT: GitError = GitError::Damaged("a packet without an end");
    let mut packets = Vec::new();
    while !body.is_empty() {
        let digits = body.get(..4).and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(CUT)?;
        let length = usize::from_str_radix(digits, 16).map_err(|_| CUT)?;
        let taken = match length {
            0 => {
                packets.push(Packet::Flush);
                4
            }
            1 => {
                packets.push(Packet::Delimiter);
                4
            }
            2 => 4,
            length => {
                packets.push(Packet::Data(body.get(4..length).ok_or(CUT)?));
                length
            }
        };
        body = &body[taken..];
    }
    Ok(packets)
}

fn packet(text: &str) -> String {
    format!("{:04x}{text}\n", text.len() + 5)
}

/// A command of protocol version 2.
pub(super) fn command(name: &str, arguments: &[&str]) -> String {
    let mut body =
        packet(&format!("command={name}")) + &packet("agent=castle") + &packet("object-format=sha1") + "0001";
    for argument in arguments {
        body += &packet(argument);
    }
    body + "0000"
}

/// What asks a server from before version 2 for one commit.
pub(super) fn old_fetch(id: &str) -> String {
    let want = format!("want {id} no-progress ofs-delta shallow side-band-64k agent=castle");
    packet(&want) + &packet("deepen 1") + "0000" + &packet("done")
}

/// The pack in the answer to a fetch: behind the word for it, or behind the `NAK` of older servers.
pub(super) fn pack(body: &[u8]) -> Result<Vec<u8>, GitError> {
    let mut packets = packets(body)?.into_iter();
    let begins = packets.any(|packet| matches!(packet.line(), Some(b"packfile" | b"NAK")));
    if !begins {
        return Err(GitError::Damaged("no pack came"));
    }
    let mut pack = Vec::new();
    for packet in packets {
        match packet {
            // The first byte is the channel: the pack, what people may want to read, or what went wrong there.
            Packet::Data([1, data @ ..]) => pack.extend_from_slice(data),
            Packet::Data([3, ..]) => return Err(GitError::Damaged("the server gave up in the middle")),
            _ => {}
        }
    }
    Ok(pack)
}
