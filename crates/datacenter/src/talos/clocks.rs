//! The clocks of nodes: right, unless somebody has shifted them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use castle_talos_api::Timestamp;

use super::config::Role;
use crate::kubernetes::kube::stamp;
use crate::world::World;

/// How long the certificate of a server holds, and after how long there is another one.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const RENEWED: Duration = Duration::from_secs(12 * 60 * 60);

/// How many seconds a clock is ahead since when, by the clock of the world. What was noted before stays as it was.
#[derive(Debug, Default)]
pub(crate) struct Shifts(BTreeMap<Duration, i64>);

impl Shifts {
    pub(crate) fn shift(&mut self, now: Duration, ahead: i64) {
        self.0.insert(now, ahead);
    }

    pub(crate) fn at(&self, moment: Duration) -> i64 {
        self.0.range(..=moment).next_back().map_or(0, |(_, ahead)| *ahead)
    }
}

/// A point in time by a clock that is so far ahead.
fn shifted(time: Duration, ahead: i64) -> Duration {
    let by = Duration::from_secs(ahead.unsigned_abs());
    if ahead < 0 { time.saturating_sub(by) } else { time + by }
}

/// A time since 1970 as headers tell it.
fn http_date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds / DAY.as_secs();
    let weekday = DAYS.get((days % 7) as usize).copied().unwrap_or_default();
    let [year, month, day, hour, minute, second] = castle_seams::calendar(seconds);
    let month = MONTHS.get((month as usize).saturating_sub(1)).copied().unwrap_or_default();
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

impl World {
    /// How many seconds the clock of a node is ahead now.
    pub(crate) fn clock_ahead(&self, vmid: u32) -> i64 {
        self.clock_ahead_at(vmid, self.now)
    }

    fn clock_ahead_at(&self, vmid: u32, moment: Duration) -> i64 {
        self.talos.clocks.get(&vmid).map_or(0, |shifts| shifts.at(moment))
    }

    /// What the clock of a node said at a moment of the world, since 1970.
    ///
    /// Where clients live in another time than the world, nodes do as they: what happens is as long ago, and now is their now.
    fn node_time(&self, vmid: u32, moment: Duration) -> Duration {
        shifted(self.right_time(moment), self.clock_ahead_at(vmid, moment))
    }

    /// What a clock that is right said then, to whoever comes.
    fn right_time(&self, moment: Duration) -> Duration {
        let now = self.clients.as_ref().and_then(|clock| clock.wall().duration_since(SystemTime::UNIX_EPOCH).ok());
        match now {
            Some(now) => now.saturating_sub(self.now.saturating_sub(moment)),
            None => self.calendar + moment,
        }
    }

    /// What time it is by the hypervisor, as the header of an answer tells it: `Sun, 06 Nov 1994 08:49:37 GMT`.
    pub(crate) fn hypervisor_date(&self) -> String {
        http_date(shifted(self.right_time(self.now), self.hypervisor_ahead).as_secs())
    }

    /// The same, as answers tell it.
    pub(crate) fn node_timestamp(&self, vmid: u32, moment: Duration) -> Timestamp {
        let since = self.node_time(vmid, moment);
        Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
    }

    /// A right time as the clock of a node tells it.
    pub(crate) fn by_clock_of(&self, vmid: u32, right: SystemTime) -> SystemTime {
        let since = right.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SystemTime::UNIX_EPOCH + shifted(since, self.clock_ahead(vmid))
    }

    /// Whose clock dates the certificate of a node: a worker's is signed by a control plane.
    pub(crate) fn certifier_of(&self, vmid: u32) -> u32 {
        let node = self.talos.nodes.get(&vmid);
        let Some(config) = node.and_then(|node| node.config()).filter(|config| config.role == Role::Worker) else {
            return vmid;
        };
        let mut planes = self.talos.nodes.values().filter(|other| other.is_control_plane());
        planes.find(|other| other.cluster() == Some(config.key.as_str())).map_or(vmid, |plane| plane.vmid)
    }

    /// What a client says who finds that the certificate of a node is not valid at its own time; nothing if it is.
    pub(crate) fn untimely(&self, vmid: u32) -> Option<String> {
        let boot = self.talos.boot(vmid)?;
        let age = self.now.saturating_sub(boot.certified);
        let renewed = boot.certified + RENEWED * u32::try_from(age.as_secs() / RENEWED.as_secs()).unwrap_or(0);
        let from = self.node_time(self.certifier_of(vmid), renewed);
        let now = self.calendar + self.now;
        // Certificates know whole seconds.
        let why = match (now.as_secs() < from.as_secs(), now > from + DAY) {
            (true, _) => format!("before {}", stamp(from)),
            (_, true) => format!("after {}", stamp(from + DAY)),
            _ => return None,
        };
        let now = stamp(now);
        Some(format!(
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time {now} is {why}"
        ))
    }

    /// A node has reached a time server: its clock is right, and its certificates are made anew by it.
    pub(crate) fn clock_settles(&mut self, vmid: u32) {
        let (now, apid) = (self.now, self.talos.next_apid());
        let is_right = self.clock_ahead(vmid) == 0;
        if let Some(shifts) = self.talos.clocks.get_mut(&vmid).filter(|_| !is_right) {
            shifts.shift(now, 0);
        }
        self.talos.stranded.remove(&vmid);
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        boot.is_synced = true;
        if is_right {
            return;
        }
        boot.epoch += 1;
        boot.certified = now;
        // A server here keeps the certificate that it began with.
        if boot.apid.is_some() {
            boot.apid = Some(apid);
        }
    }

    /// Whether a node finds a time server. One whose clock was shifted reaches only those that its configuration names.
    pub(crate) fn reaches_time(&self, vmid: u32) -> bool {
        let config = self.talos.nodes.get(&vmid).and_then(|node| node.config());
        !self.talos.is_time_lost
            && (self.clock_ahead(vmid) == 0 || config.is_some_and(|config| config.names_time_servers()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_headers_have_them() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
    }

    #[test]
    fn what_was_noted_before_a_shift_stays_as_it_was() {
        let second = Duration::from_secs;
        let mut shifts = Shifts::default();
        shifts.shift(second(10), 7200);
        shifts.shift(second(20), 0);
        assert_eq!([9, 10, 19, 20, 30].map(|at| shifts.at(second(at))), [0, 7200, 7200, 0, 0]);
        assert_eq!(shifted(second(10_000), -7200), second(2800));
    }
}
