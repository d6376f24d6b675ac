//! `castle gitops`: a repository, judged before a cluster sees it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::world::World;

/// A project as `castle new` stamps it.
fn project() -> World {
    let world = World::new();
    assert_eq!(world.castle(&["new", "green", "--platform", "embedded"]).code, Some(0));
    world
}

fn check(world: &World, more: &[&str]) -> crate::world::Ran {
    world.castle(&[&["gitops", "check", "gitops", "clusters/green/embedded"], more].concat())
}

#[test]
fn the_repository_that_is_stamped_passes() {
    let world = project();
    let ran = check(&world, &[]);
    insta::assert_snapshot!(ran.transcript(), @r"
    4 Kustomizations with 16 objects: 0 errors, 0 warnings, 0 notes
    exit 0
    ");
    let result = check(&world, &["--json"]).result();
    assert_eq!((&result["result"], &result["problems"]), (&"valid".into(), &serde_json::json!([])));
    assert!(!world.read("gitops/clusters/green/apps.yaml").contains("PROJECT"));
    let without = World::new();
    without.castle(&["new", "green", "--no-gitops"]);
    assert!(without.files().iter().all(|file| !file.starts_with("gitops/")));
}

#[test]
fn what_is_stamped_stays_as_people_change_it() {
    let world = project();
    world.write("gitops/apps/blog/service.yaml", "mine\n");
    let ran = world.castle(&["new", "red", "--platform", "embedded"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    assert_eq!(world.read("gitops/apps/blog/service.yaml"), "mine\n");
    assert!(world.read("gitops/clusters/red/apps.yaml").contains("cluster: red"));
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_the_way_out() {
    let world = project();
    let mend = |file: &str, from: &str, to: &str| {
        let text = world.read(file);
        assert!(text.contains(from), "{file}");
        world.write(file, text.replacen(from, to, 1));
    };
    mend("gitops/clusters/green/apps.yaml", "  retryInterval: 30s\n", "");
    mend("gitops/apps/blog/service.yaml", "${domain:=example.org}", "${domain}");
    mend("gitops/infrastructure/controllers/cert-manager.yaml", "crds: {enabled: true}", "replicaCount: 2");
    let ran = check(&world, &[]);
    insta::assert_snapshot!(ran.transcript());
    let result = check(&world, &["--json"]).result();
    assert_eq!(result["result"], "invalid");
    let codes: Vec<&str> =
        result["problems"].as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["variable-missing", "retry-interval-missing", "kind-not-served"]);
    let quiet = check(&world, &["--quiet"]);
    assert!(!quiet.stderr.contains("retry-interval-missing") && quiet.stdout.is_empty());
}

/// What is in a folder and not in what Flux builds: links, and files that it ignores, whatever their size. And one cause is told once, with
/// all its places for programs.
#[test]
fn what_flux_drops_is_not_built_and_one_cause_is_told_once() {
    let world = project();
    world.write("gitops/docs/video.wmv", vec![0; 9 << 20]);
    let ran = check(&world, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    std::os::unix::fs::symlink("service.yaml", world.path("gitops/apps/blog/link.yaml")).unwrap();
    let kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [link.yaml]\n";
    world.write("gitops/apps/blog/kustomization.yaml", kustomization);
    let ran = check(&world, &[]);
    assert!(ran.code == Some(4) && ran.stderr.contains("link.yaml is a symbolic link"), "{}", ran.transcript());
    let pods: String = (0..9)
        .map(|number| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}, namespace: default}}\nspec:\n  containers:\n  \
                 - {{name: a, image: a, envFrom: [{{secretRef: {{name: nobody-makes}}}}]}}\n---\n"
            )
        })
        .collect();
    world.write("gitops/apps/blog/pods.yaml", pods);
    world.write("gitops/apps/blog/kustomization.yaml", kustomization.replace("link.yaml", "pods.yaml"));
    let result = check(&world, &["--json"]).result();
    let problems: Vec<&serde_json::Value> =
        result["problems"].as_array().unwrap().iter().filter(|problem| problem["code"] == "secret-missing").collect();
    assert_eq!(problems.len(), 1, "{result:#}");
    assert_eq!(problems[0]["also"].as_array().unwrap().len(), 8);
    let ran = check(&world, &[]);
    assert!(ran.stderr.contains("so it is with 8 more\n  also at apps/blog/pods.yaml:13, "), "{}", ran.transcript());
}

/// Serves the repositories below a folder on loopback, by git's own program, for as long as the test runs. What is called
/// private wants a token that nobody has.
fn serve(root: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let root = root.to_owned();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            while let Some((head, body)) = request(&mut stream) {
                if stream.write_all(&answer(&root, &head, &body)).is_err() {
                    break;
                }
            }
        }
    });
    address
}

/// The next request: its head and its body.
fn request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

fn answer(root: &Path, head: &str, body: &[u8]) -> Vec<u8> {
    let header = |name: &str| head.lines().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned));
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path.starts_with("/private/") {
        return b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec();
    }
    let mut backend = Command::new("git");
    backend.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", root);
    backend.env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1").env("REQUEST_METHOD", method);
    backend.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
    backend.env("PATH_INFO", path).env("QUERY_STRING", query).env("CONTENT_LENGTH", body.len().to_string());
    backend.env("CONTENT_TYPE", header("content-type: ").unwrap_or_default());
    backend.env("GIT_PROTOCOL", header("git-protocol: ").unwrap_or_default());
    let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let told = String::from_utf8_lossy(&said[..end]);
    let status = told.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let content = &said[end + 4..];
    [format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", content.len()).as_bytes(), content].concat()
}

#[test]
fn a_repository_is_fetched_from_where_it_is() {
    let world = project();
    let git = |args: &[&str]| {
        let settings = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"];
        let ran = world.run(Command::new("git").args(["-C", "gitops"]).args(settings).args(args));
        assert_eq!(ran.code, Some(0), "{args:?} {}", ran.stderr);
    };
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", "first"]);
    let address = serve(&world.path(""));
    let source = format!("{address}/gitops/.git");
    let result = world.castle(&["gitops", "check", "--json", &source, "clusters/green/embedded"]).result();
    assert_eq!((&result["result"], &result["objects"]), (&"valid".into(), &16.into()), "{result:#}");
    assert_eq!(result["commit"], world.read("gitops/.git/refs/heads/main").trim());
    let stamped = world.read("clusters/green/embedded/castle.yaml");
    world.write("clusters/green/embedded/token", "never-shown-token");
    for (repository, more, code, said) in [
        ("gitops/.git", "branch: nowhere", 4, "the repository has no branch nowhere; it has main"),
        ("gitops/.git", "path: clusters/nope", 4, "the folder clusters/nope is not in the repository"),
        ("nothing/.git", "branch: main", 1, "there is no repository at this address"),
        // The credential is for the repository that the file names: no other is shown it.
        ("private/.git", "credential: file:token", 1, "the repository wants a credential"),
    ] {
        let gitops = format!("gitops:\n  repository: https://git.example/site.git\n  {more}\n");
        let before = stamped.split("gitops:").next().unwrap();
        world.write("clusters/green/embedded/castle.yaml", format!("{before}\n{gitops}"));
        let ran = world.castle(&["gitops", "check", &format!("{address}/{repository}"), "clusters/green/embedded"]);
        assert_eq!(ran.code, Some(code), "{more}: {}", ran.transcript());
        assert!(ran.transcript().contains(said), "{more}: {}", ran.transcript());
        assert!(!ran.transcript().contains("never-shown-token"));
    }
    world.write("clusters/green/embedded/castle.yaml", stamped);
    // Nothing listens there, and nothing leaves the machine.
    let ran = world.castle(&["gitops", "check", "http://127.0.0.1:9/site.git", "clusters/green/embedded"]);
    assert_eq!(ran.code, Some(1), "{}", ran.transcript());
    assert!(ran.stderr.contains("the repository does not answer"), "{}", ran.stderr);
    let ran = check(&world, &[]);
    assert_eq!(ran.code, Some(0), "what git keeps for itself is not looked at: {}", ran.transcript());
}

#[test]
fn what_cannot_be_checked_is_said_so() {
    let world = project();
    for (args, code, said) in [
        (&["git@github.com:me/site.git", "clusters/green/embedded"][..], 0, "cannot be read from here"),
        (&["nowhere", "clusters/green/embedded"], 4, "nowhere"),
        (&["gitops", "nowhere"], 4, "nowhere"),
        (&["gitops", "clusters/green/embedded", "--entry", "clusters/nope"], 4, "path-missing"),
        (&["--explain", "kind-not-served"], 0, "Error. Nothing that will be installed serves a kind"),
        (&["--explain", "kind-not-serve"], 4, "did you mean `kind-not-served`?"),
    ] {
        let ran = world.castle(&[&["gitops", "check"], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?} {}", ran.transcript());
        assert!(ran.transcript().contains(said), "{args:?} {}", ran.transcript());
    }
    let ran =
        world.castle(&["gitops", "check", "--json", "ssh://git@github.com/me/site.git", "clusters/green/embedded"]);
    assert_eq!(ran.result()["result"], "unread");
    std::fs::create_dir(world.path("empty")).unwrap();
    let ran = world.castle(&["gitops", "check", "empty", "clusters/green/embedded"]);
    assert!(
        ran.code == Some(4) && ran.stderr.contains("clusters/green is not in the repository"),
        "{}",
        ran.transcript()
    );
}
