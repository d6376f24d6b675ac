use std::path::PathBuf;

use castle_engine::{Layer, Record, State, StateError, Taking, lineage};
use castle_layers::{platform, secrets};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::commands::confirm::confirmed;
use crate::doors::Doors;
use crate::keeping::{ANOTHER_LIFE, Kept};
use crate::masking;
use crate::output::{Exit, Printer, ago, table};
use crate::recorded::Recorded;

/// Look at what castle remembers of a castle, and bring an older memory back
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the newest record of each layer
    Show {
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// List the records of a layer that are kept
    History {
        /// The layer
        layer: String,
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Write an older record of a layer anew, as its newest
    Restore {
        /// The layer
        layer: String,
        /// Which record
        serial: u64,
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: &StateArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let path = match &args.what {
        What::Show { path } | What::History { path, .. } | What::Restore { path, .. } => path,
    };
    let kept = match Kept::open(doors, path) {
        Ok(kept) => kept,
        Err(why) => return printer.invalid("state", &why),
    };
    let result = match &args.what {
        What::Show { .. } => show(&kept, printer).await,
        What::History { layer, .. } => history(&kept, &Layer::new(layer), printer).await,
        What::Restore { layer, serial, yes, .. } => restore(&kept, &Layer::new(layer), *serial, *yes, printer).await,
    };
    result.unwrap_or_else(|why| printer.failed("state", &why))
}

/// The state, if the castle was ever raised; otherwise that is said.
async fn open(kept: &Kept, printer: &mut Printer) -> Result<Option<State>, String> {
    let Some(castle) = kept.castle_id().await? else {
        printer.say(&format!("Nothing is remembered of {} in {}: it was not raised yet.", kept.name(), kept.place));
        return Ok(None);
    };
    kept.state(castle).map(Some)
}

async fn show(kept: &Kept, printer: &mut Printer) -> Result<Exit, String> {
    let (mut records, mut unread) = (Vec::new(), Vec::new());
    if let Some(mut state) = open(kept, printer).await? {
        for layer in layers(kept).await? {
            match state.latest(&layer).await {
                Ok(record) => records.extend(record),
                Err(error) => unread.push(error),
            }
        }
        if unread.is_empty() {
            kept.remember(&state)?;
        }
        printer.say(&format!("What is remembered of {} in {}:\n\n{}", kept.name(), kept.place, rows(&records, kept)));
    }
    Ok(finish(kept, &records, &unread, printer))
}

async fn history(kept: &Kept, layer: &Layer, printer: &mut Printer) -> Result<Exit, String> {
    let (mut records, mut unread) = (Vec::new(), Vec::new());
    if let Some(mut state) = open(kept, printer).await? {
        for serial in state.history(layer).await.map_err(|error| error.to_string())? {
            match state.read(layer, serial).await {
                Ok(record) => records.push(record),
                Err(error) => unread.push(error),
            }
        }
        if unread.is_empty() {
            kept.remember(&state)?;
        }
        printer.say(&rows(&records, kept));
    }
    Ok(finish(kept, &records, &unread, printer))
}

async fn restore(kept: &Kept, layer: &Layer, serial: u64, yes: bool, printer: &mut Printer) -> Result<Exit, String> {
    let (Some(mut state), Some(castle)) = (open(kept, printer).await?, kept.castle_id().await?) else {
        return Err(kept.unknown());
    };
    // Each life has secrets of its own: with those of an earlier one, that life is brought back.
    let record = state.read(layer, serial).await.map_err(|error| kept.told(&error))?;
    let life =
        record.payload["generation"].as_u64().filter(|life| *layer == secrets::layer() && *life != castle.generation);
    if let Some(life) = record.payload["generation"].as_u64().filter(|_| *layer == platform::layer())
        && life != castle.generation
    {
        let (name, now) = (kept.name(), castle.generation);
        let why = format!("record {serial} of {layer} is of life {life}, and {name} is in life {now}");
        let next = "castle state history secrets, and castle state restore secrets SERIAL brings a life back, with its own secrets";
        return Ok(printer.refused("state", &format!("{why}\n  next: {next}")));
    }
    let back = life.map_or(String::new(), |life| {
        format!(", and go back from life {} to life {life}, which it is of", castle.generation)
    });
    let question = format!("Write record {serial} of {layer} of {} anew, as its newest{back}?", kept.name());
    if !confirmed(&question, yes, printer) {
        return Ok(printer.refused("state", "nothing was written: answer yes, or give --yes"));
    }
    let held = kept.lease(Taking::Politely, 0).await.map_err(|denied| denied.to_string())?;
    // Somebody else may have begun or ended a life meanwhile.
    if kept.castle_id().await? != Some(castle.clone()) {
        let _ = held.lease.release().await;
        return Err(kept.moved_on(ANOTHER_LIFE));
    }
    let writing = async {
        let epoch = held.lease.epoch();
        let newest = state.latest(layer).await.map_err(|error| kept.told(&error))?;
        let mut payload = record.payload.clone();
        if *layer == platform::layer() {
            // What was made since may still be there.
            payload = Recorded::restored(&payload, newest.as_ref().map(|newest| &newest.payload));
        } else if *layer == secrets::layer() {
            // What has begun since does not begin once more.
            let all = records(&mut state, layer).await;
            payload = secrets::restored(&payload, all.iter().map(|record| &record.payload));
        }
        let mut machines = None;
        if let Some(life) = life {
            // Before it is that life again: whoever does not see its machines then has to know of them.
            machines = known_of(&mut state, life).await;
            if let Some(known) = &machines {
                let platform = platform::layer();
                state.write(&platform, known.clone(), epoch).await.map_err(|error| error.to_string())?;
            }
        }
        let written = state.write(layer, payload, epoch).await.map_err(|error| kept.told(&error))?;
        if let Some(life) = life {
            lineage::go_back(kept.store.as_ref(), &castle, life).await.map_err(|error| error.to_string())?;
        }
        Ok::<_, String>((written, machines))
    };
    let written = writing.await;
    // Given back whatever came of it; one that cannot be given back runs out by itself.
    let _ = held.lease.release().await;
    let (written, machines) = written?;
    kept.remember(&state)?;
    printer.say(&format!("Record {serial} of {layer} is now its newest, record {written}."));
    if let Some(life) = life {
        printer.say(&format!("{} is in life {life} again.", kept.name()));
        if machines.is_none() {
            printer.complain_to_people(
                "which machines it had is not kept any more\n  next: castle adopt, where castle sees them, before anything else",
            );
        }
    }
    printer.result(
        &json!({"verb": "state", "castle": kept.name(), "result": "restored", "layer": layer, "serial": written,
        "generation": life.unwrap_or(castle.generation)}),
    );
    Ok(Exit::Done)
}

/// What the newest record says that knows machines of this life; one that ended has been written down without any.
async fn known_of(state: &mut State, life: u64) -> Option<Value> {
    let layer = platform::layer();
    // Whoever cannot read the newest writes none after it.
    state.latest(&layer).await.ok()?;
    let records = records(state, &layer).await;
    records.into_iter().map(|record| record.payload).find(|payload| Recorded::knows_machines(payload, life))
}

/// All records of a layer that can be read, the newest first.
async fn records(state: &mut State, layer: &Layer) -> Vec<Record> {
    let mut records = Vec::new();
    for serial in state.history(layer).await.unwrap_or_default() {
        records.extend(state.read(layer, serial).await.ok());
    }
    records.sort_by_key(|record| std::cmp::Reverse(record.serial));
    records
}

/// The layers of which there are records.
async fn layers(kept: &Kept) -> Result<Vec<Layer>, String> {
    let folder = format!("{}/state/", kept.key());
    let keys = kept.store.list(&folder).await.map_err(|error| error.to_string())?;
    let mut names: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix(&folder)?.split('/').next()).collect();
    names.dedup();
    Ok(names.into_iter().map(Layer::new).collect())
}

fn rows(records: &[Record], kept: &Kept) -> String {
    let now = kept.clock().wall();
    let mut rows = vec![["layer", "record", "epoch", "written", "by"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        let age = now.duration_since(record.written).unwrap_or_default();
        let (serial, epoch) = (record.serial.to_string(), record.epoch.to_string());
        [record.layer.to_string(), serial, epoch, ago(age), masking::text(&record.writer)]
    }));
    table(&rows)
}

fn finish(kept: &Kept, records: &[Record], unread: &[StateError], printer: &mut Printer) -> Exit {
    let object = |record: &Record| -> Value {
        let unix = record.written.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        json!({
            "layer": record.layer, "serial": record.serial, "epoch": record.epoch, "writer": masking::text(&record.writer),
            "written_unix": unix, "payload": masking::value(shown(record)),
        })
    };
    let records: Vec<Value> = records.iter().map(object).collect();
    let mut problems = Vec::new();
    for error in unread {
        let told = kept.told(error);
        printer.complain_to_people(&told);
        let (summary, hint) = told.split_once("\n  next: ").unwrap_or((&told, ""));
        problems.push(json!({"severity": "error", "summary": summary, "hint": hint}));
    }
    let (result, exit) = if unread.is_empty() { ("shown", Exit::Done) } else { ("failed", Exit::Failed) };
    printer.result(
        &json!({"verb": "state", "castle": kept.name(), "result": result, "place": kept.place, "records": records,
        "problems": problems}),
    );
    exit
}

/// What a record holds, as far as it may be seen: of the secrets layer no text.
fn shown(record: &Record) -> Value {
    let mut payload = record.payload.clone();
    if record.layer == secrets::layer()
        && let Some(fields) = payload.as_object_mut()
    {
        for field in fields.values_mut().filter(|field| !field.is_number()) {
            *field = "hidden".into();
        }
    }
    payload
}
