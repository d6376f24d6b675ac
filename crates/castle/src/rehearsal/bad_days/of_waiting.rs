//! Waiting: what is waited for is told from the first second, silence never lasts, every wait has an end, and Ctrl-C ends it at once.

use super::of_castle::full;
use super::*;

/// Runs `up`, while another device has the address of the worker.
async fn up_without_its_worker(life: &Life, words: &[&str]) -> Told {
    let address = "127.42.0.21".parse().unwrap();
    life.datacenter.occupy_address(address, true);
    let told = life.run(words).await;
    life.datacenter.occupy_address(address, false);
    told
}

/// The longest time between two lines.
fn longest_silence(text: &str) -> f64 {
    let times = text.lines().filter_map(|line| line.trim_start().split_once(" s  ")?.0.parse::<f64>().ok());
    let times: Vec<f64> = std::iter::once(0.0).chain(times).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}

#[test]
fn a_node_that_never_answers_is_told_from_the_first_second_and_ends_the_run() {
    day(async |life| {
        let begun = life.clock().monotonic();
        let up = up_without_its_worker(life, &["up"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        let words = [
            "platform/answers/blue-worker-1  waits for blue-worker-1: does not answer at 127.42.0.21 port 50000",
            "likely causes: the bridge or VLAN of its machine",
            "a firewall between here and there",
            "look at the console of blue-worker-1 in Proxmox",
            "nc -vz 127.42.0.21 50000",
        ];
        hold(&up, Exit::Failed, &words);
        assert!(took < Duration::from_secs(17 * 60), "{took:?}");
        let silence = longest_silence(&up.printed.text);
        assert!(silence <= 30.5, "nothing was said for {silence} s: {}", up.printed.text);
    });
}

#[test]
fn ctrl_c_while_only_waiting_ends_at_once() {
    day(async |life| {
        let interrupting = pin!(async {
            life.clock().sleep(Duration::from_secs(400)).await;
            life.interrupt();
            std::future::pending::<()>().await;
        });
        let running = pin!(up_without_its_worker(life, &["up"]));
        let begun = life.clock().monotonic();
        let Either::Left((told, _)) = select(running, interrupting).await else { panic!("it never ends") };
        hold(&told, Exit::Interrupted, &["Interrupted. ", "Run the same command again to go on."]);
        let took = life.clock().monotonic().saturating_sub(begun);
        assert!(took < Duration::from_secs(402), "{took:?}");
    });
}

#[test]
fn a_run_has_as_much_time_as_it_is_given() {
    day(async |life| {
        let begun = life.clock().monotonic();
        let up = up_without_its_worker(life, &["up", "--timeout", "5m"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        let words = ["stopped after 4.9 min (--timeout)", "platform/answers/blue-worker-1", "it goes on where it was"];
        hold(&up, Exit::Failed, &words);
        assert!(took < Duration::from_secs(5 * 60 + 35), "{took:?}");
    });
}

/// What cannot be built cannot be built the next time either: nobody waits for it.
#[test]
fn what_flux_refuses_for_good_ends_the_run() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        let file = life.script.file.with_file_name("gitops").join("clusters/blue/kustomization.yaml");
        let write = |text: &str| life.disk().tamper(&file, text.as_bytes().to_vec());
        write("resources: [missing.yaml]\n");
        let begun = life.clock().monotonic();
        let up = life.run(&["up", "--skip-preflight"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        hold(&up, Exit::Failed, &["Kustomization flux-system/flux-system: is not ready (BuildFailed)", "missing.yaml"]);
        assert!(took < Duration::from_secs(8 * 60), "{took:?}");
        write("resources: [word.yaml]\n");
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}
