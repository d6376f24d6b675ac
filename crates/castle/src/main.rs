//! castle.

fn main() -> std::process::ExitCode {
    castle::main()
}
