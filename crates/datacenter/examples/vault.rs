//! Serves an Infisical on loopback for a while: `vault SECONDS CLIENT_ID CLIENT_SECRET`. Prints where, the fingerprint of
//! its certificate, and the certificate of the authority that signed it, in base64. It has the project `tazlab` with the environments `dev` and `prod`. For clients nobody here wrote.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{Import, Infisical, Placed};
use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_seams::{Clock, SystemClock};

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, id, secret] = args.as_slice() else {
        eprintln!("usage: vault SECONDS CLIENT_ID CLIENT_SECRET");
        return ExitCode::FAILURE;
    };
    match serve(seconds, id, secret).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(seconds: &str, id: &str, secret: &str) -> Result<(), Box<dyn Error>> {
    let seconds = Duration::from_secs(seconds.parse()?);
    let mut vault = Infisical::new("localhost", "tazlab", &["dev", "prod"], id, secret);
    let project = &mut vault.projects[0];
    project.secrets.push(Placed::new("dev", "/", "HOST", "db.example.net"));
    project.secrets.push(Placed::new("dev", "/", "URL", "https://${HOST}"));
    project.secrets.push(Placed::new("prod", "/shared", "FAR", "away"));
    project.imports.push(Import { into: ("dev".into(), "/".into()), from: ("prod".into(), "/shared".into()) });
    let clock = Arc::new(SystemClock::new());
    let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none()).with_vault(vault);
    let datacenter = Datacenter::new(blueprint, clock.clone());
    let serving = datacenter.serve_vault("localhost", ([127, 0, 0, 1], 0).into()).await?;
    let authority: String = serving.authority.lines().filter(|line| !line.starts_with("-----")).collect();
    println!("https://{} {} {authority}", serving.address, serving.fingerprint);
    clock.sleep(seconds).await;
    Ok(())
}
