use std::error::Error as _;
use std::future::pending;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// Generous, because it bounds real connections: only reached when something is broken.
const DIAL: TcpDial = TcpDial { timeout: Duration::from_secs(30) };

async fn dial_error(dial: TcpDial, target: &Target) -> DialError {
    dial.dial(target).await.err().expect("nothing to connect to")
}

/// Connects in virtual time, where `connect` decides what each of the addresses 192.0.2.1 to 192.0.2.`count` does.
async fn connect_virtually<F: Future<Output = io::Result<u8>>>(
    count: u8,
    connect: impl Fn(u8) -> F,
) -> (Result<u8, DialError>, Duration) {
    let addresses: Vec<SocketAddr> = (1..=count).map(|last| SocketAddr::from(([192, 0, 2, last], 8006))).collect();
    let (target, start) = (Target::new("pve.example", 8006), Instant::now());
    let by_last_byte = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => connect(ip.octets()[3]),
        IpAddr::V6(_) => unreachable!("all are version 4"),
    };
    let result = connect_first(&target, &addresses, start, 10 * SECOND, by_last_byte).await;
    (result, start.elapsed())
}

#[test]
fn targets_show_brackets_around_ipv6_alone() {
    let shown = |host: &str| Target::new(host, 8006).to_string();
    assert_eq!(shown("pve.example"), "pve.example:8006");
    assert_eq!(shown("192.0.2.1"), "192.0.2.1:8006");
    assert_eq!(shown("2001:db8::1"), "[2001:db8::1]:8006");
    assert_eq!(shown("[2001:db8::1]"), "[2001:db8::1]:8006");
    assert_eq!(shown("fe80::1%eth0"), "[fe80::1%eth0]:8006");
}

/// Both by address and by name; where the name means ::1 as well, that one refuses and the next is tried.
#[tokio::test]
async fn bytes_go_both_ways() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost"] {
        let mut near = DIAL.dial(&Target::new(host, port)).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"ping").await.unwrap();
        far.write_all(b"pong").await.unwrap();
        let mut heard = [[0; 4]; 2];
        far.read_exact(&mut heard[0]).await.unwrap();
        near.read_exact(&mut heard[1]).await.unwrap();
        assert_eq!(heard, [*b"ping", *b"pong"]);
    }
}

#[tokio::test]
async fn small_writes_are_not_held_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    assert!(connect(listener.local_addr().unwrap()).await.unwrap().nodelay().unwrap());
}

#[tokio::test]
async fn a_refusal_is_told_once() {
    // Bound but not listening: the port refuses for as long as the socket lives, and nobody else can take it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();

    let error = dial_error(DIAL, &Target::new("127.0.0.1", address.port())).await;
    assert_eq!((error.kind, error.tried.as_slice()), (DialErrorKind::Refused, &[address][..]));
    assert_eq!(error.to_string(), format!("cannot connect to {address}: connection refused"));
    assert!(error.source().is_none(), "the cause is in the message already");
}

/// A name that no resolver is ever asked for, so that the test stays on this machine.
#[tokio::test]
async fn a_name_that_cannot_be_resolved_tries_nothing() {
    let error = dial_error(DIAL, &Target::new("pve\0example", 8006)).await;
    assert_eq!((error.kind, error.tried.len()), (DialErrorKind::Unresolved, 0));
    assert!(error.to_string().contains("the name did not resolve: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_first_address_leaves_time_for_the_next() {
    let second_answers = async |last| if last == 1 { pending().await } else { Ok(last) };
    let (result, took) = connect_virtually(2, second_answers).await;
    assert_eq!((result.unwrap(), took), (2, 5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn silence_everywhere_ends_at_the_limit() {
    let (result, took) = connect_virtually(3, async |_| pending().await).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind, DialErrorKind::TimedOut);
    assert_eq!(
        error.to_string(),
        "cannot connect to pve.example:8006: no answer within 10 s \
         (tried 192.0.2.1:8006, 192.0.2.2:8006, 192.0.2.3:8006)"
    );
    // Timers have a grain of a millisecond, and each address may round up by one.
    assert!((10 * SECOND..10 * SECOND + Duration::from_millis(3)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_most_telling_failure_is_reported() {
    let kinds = [io::ErrorKind::NetworkUnreachable, io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut];
    let (result, _) = connect_virtually(3, async |last| Err(kinds[usize::from(last) - 1].into())).await;
    let error = result.unwrap_err();
    assert_eq!((error.kind, error.tried.len()), (DialErrorKind::Refused, 3));
}

#[test]
fn kinds_follow_the_operating_system() {
    let kind = |kind: io::ErrorKind| DialErrorKind::from(&io::Error::from(kind));
    assert_eq!(kind(io::ErrorKind::ConnectionRefused), DialErrorKind::Refused);
    assert_eq!(kind(io::ErrorKind::TimedOut), DialErrorKind::TimedOut);
    assert_eq!(kind(io::ErrorKind::HostUnreachable), DialErrorKind::Unreachable);
    assert_eq!(kind(io::ErrorKind::NetworkUnreachable), DialErrorKind::Unreachable);
    assert_eq!(kind(io::ErrorKind::PermissionDenied), DialErrorKind::Other);
}
