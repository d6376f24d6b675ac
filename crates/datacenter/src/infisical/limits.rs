//! How much may be asked in a minute.

use std::time::Duration;

use super::reply::VaultReply;
use super::state::Site;

pub(super) const READS: &str = "reads";
pub(super) const WRITES: &str = "writes";
pub(super) const SECRETS: &str = "secrets";

const WINDOW: Duration = Duration::from_secs(60);

/// Counts a request, or refuses it until the window ends. The headers are those of the framework's plugin by default: not seen.
pub(super) fn count(site: &mut Site, now: Duration, kind: &'static str) -> Result<(), VaultReply> {
    let Some(limits) = site.limits else { return Ok(()) };
    let most = match kind {
        READS => limits.reads,
        WRITES => limits.writes,
        _ => limits.secrets,
    };
    let window = site.windows.entry(kind).or_insert((now, 0));
    if now >= window.0 + WINDOW {
        *window = (now, 0);
    }
    window.1 += 1;
    if window.1 <= most {
        return Ok(());
    }
    let left = (window.0 + WINDOW).saturating_sub(now);
    let seconds = left.as_millis().div_ceil(1_000);
    let message = format!("Rate limit exceeded. Please try again in {seconds} seconds");
    Err(VaultReply::failure(429, "RateLimitExceeded", message)
        .with("retry-after", &seconds)
        .with("x-ratelimit-limit", &most)
        .with("x-ratelimit-remaining", &0)
        .with("x-ratelimit-reset", &seconds))
}
