//! The rdkafka crate as the servant of a test: one JSON request per line, one JSON line for each: {"answer": …} or
//! {"error": "…"}. What can be asked stands in tests/conformance/drivers/__init__.py.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use serde_json::{json, Value};

const PATIENCE: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(100);

type Answer = Result<Value, Box<dyn Error>>;

/// A member of a group: its thread polls until it is stopped, and commits then.
struct Member {
    values: Arc<Mutex<Vec<String>>>,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

/// Remembers the first record that was not delivered.
#[derive(Default)]
struct Deliveries {
    error: Mutex<Option<String>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        if let Err((error, _)) = result {
            self.error.lock().unwrap().get_or_insert(error.to_string());
        }
    }
}

fn text<'a>(request: &'a Value, name: &str) -> &'a str {
    request[name].as_str().unwrap_or("")
}

fn number(request: &Value, name: &str) -> i64 {
    request[name].as_i64().unwrap_or(0)
}

fn config(request: &Value) -> ClientConfig {
    let servers: Vec<&str> = request["servers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers.join(",")).set("reconnect.backoff.ms", "20");
    config
}

fn consumer(request: &Value, group: &str, settings: &[(&str, &str)]) -> Result<BaseConsumer, Box<dyn Error>> {
    let mut config = config(request);
    config.set("group.id", group).set("auto.offset.reset", "earliest").set("fetch.wait.max.ms", "100");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    Ok(config.create()?)
}

fn administer(request: &Value) -> Answer {
    let admin: AdminClient<DefaultClientContext> = config(request).create()?;
    let options = AdminOptions::new().operation_timeout(Some(Timeout::After(PATIENCE)));
    let (topic, partitions) = (text(request, "topic"), number(request, "partitions"));
    let results = match text(request, "op") {
        "topic_create" => {
            let new = NewTopic::new(topic, partitions as i32, TopicReplication::Fixed(1));
            block_on(admin.create_topics(&[new], &options))?
        }
        "topic_grow" => block_on(admin.create_partitions(&[NewPartitions::new(topic, partitions as usize)], &options))?,
        _ => block_on(admin.delete_topics(&[topic], &options))?,
    };
    for result in results {
        result.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    Ok(Value::Null)
}

fn count_partitions(request: &Value) -> Answer {
    let metadata = consumer(request, "metadata", &[])?.fetch_metadata(Some(text(request, "topic")), PATIENCE)?;
    let topic = metadata.topics().first().ok_or("no topic in the answer")?;
    match topic.error() {
        Some(error) => Err(format!("{:?}", rdkafka::error::RDKafkaErrorCode::from(error)).into()),
        None => Ok(json!(topic.partitions().len())),
    }
}

fn find_offset(request: &Value) -> Answer {
    let mut times = TopicPartitionList::new();
    let (topic, partition) = (text(request, "topic"), number(request, "partition") as i32);
    times.add_partition_offset(topic, partition, Offset::Offset(number(request, "time")))?;
    let found = consumer(request, "times", &[])?.offsets_for_times(times, PATIENCE)?;
    Ok(json!(found.find_partition(topic, partition).and_then(|one| one.offset().to_raw())))
}

fn produce(request: &Value) -> Answer {
    let mut config = config(request);
    for (setting, name) in [("acks", "acks"), ("compression.codec", "codec")] {
        if !text(request, name).is_empty() {
            config.set(setting, text(request, name));
        }
    }
    let producer: ThreadedProducer<Deliveries> = config.create_with_context(Deliveries::default())?;
    for one in request["records"].as_array().unwrap() {
        let mut record: BaseRecord<str, str> = BaseRecord::to(text(request, "topic")).payload(text(one, "value"));
        if one["key"].is_string() {
            record = record.key(text(one, "key"));
        }
        if number(one, "partition") >= 0 {
            record = record.partition(number(one, "partition") as i32);
        }
        if number(one, "timestamp") > 0 {
            record = record.timestamp(number(one, "timestamp"));
        }
        let mut headers = OwnedHeaders::new();
        for header in one["headers"].as_array().unwrap_or(&Vec::new()) {
            headers = headers.insert(Header { key: header[0].as_str().unwrap(), value: header[1].as_str() });
        }
        producer.send(record.headers(headers)).map_err(|(error, _)| error)?;
    }
    producer.flush(PATIENCE)?;
    let error = producer.context().error.lock().unwrap().take();
    error.map_or(Ok(Value::Null), |error| Err(error.into()))
}

fn read(request: &Value) -> Answer {
    let isolation = if request["committed"] == json!(true) { "read_committed" } else { "read_uncommitted" };
    let consumer = consumer(request, "reader", &[("isolation.level", isolation), ("enable.auto.commit", "false")])?;
    let mut start = TopicPartitionList::new();
    let partition = number(request, "partition") as i32;
    start.add_partition_offset(text(request, "topic"), partition, Offset::Offset(number(request, "offset")))?;
    consumer.assign(&start)?;
    let (mut found, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while (found.len() as i64) < number(request, "count") {
        if Instant::now() > deadline {
            return Err(format!("only {} records came", found.len()).into());
        }
        let Some(message) = consumer.poll(A_MOMENT) else { continue };
        let message = message?;
        let headers: Vec<Value> = message.headers().map_or(Vec::new(), |all| {
            all.iter().map(|one| json!([one.key, String::from_utf8_lossy(one.value.unwrap_or(b""))])).collect()
        });
        found.push(json!({
            "partition": message.partition(),
            "offset": message.offset(),
            "key": message.key().map(String::from_utf8_lossy),
            "value": String::from_utf8_lossy(message.payload().unwrap_or(b"")),
            "headers": headers,
            "timestamp": message.timestamp().to_millis(),
        }));
    }
    Ok(json!(found))
}

fn transactional(request: &Value) -> Result<BaseProducer, Box<dyn Error>> {
    let producer: BaseProducer = config(request).set("transactional.id", text(request, "id")).create()?;
    producer.init_transactions(PATIENCE)?;
    producer.begin_transaction()?;
    Ok(producer)
}

fn transact(request: &Value) -> Answer {
    let producer = transactional(request)?;
    for value in request["values"].as_array().unwrap() {
        let record: BaseRecord<str, str> = BaseRecord::to(text(request, "topic")).payload(value.as_str().unwrap());
        producer.send(record).map_err(|(error, _)| error)?;
    }
    producer.flush(PATIENCE)?;
    if request["commit"] == json!(true) {
        producer.commit_transaction(PATIENCE)?;
    } else {
        producer.abort_transaction(PATIENCE)?;
    }
    Ok(Value::Null)
}

fn pipe(request: &Value) -> Answer {
    let settings = [("isolation.level", "read_committed"), ("enable.auto.commit", "false")];
    let consumer = consumer(request, text(request, "group"), &settings)?;
    consumer.subscribe(&[text(request, "topic")])?;
    let producer = transactional(request)?;
    let (mut count, deadline) = (0, Instant::now() + PATIENCE);
    while count < number(request, "count") {
        if Instant::now() > deadline {
            return Err(format!("only {count} records came").into());
        }
        let Some(message) = consumer.poll(A_MOMENT) else { continue };
        let output = format!("{}!", String::from_utf8_lossy(message?.payload().unwrap_or(b"")));
        let record: BaseRecord<str, str> = BaseRecord::to(text(request, "target")).payload(&output);
        producer.send(record).map_err(|(error, _)| error)?;
        count += 1;
    }
    let metadata = consumer.group_metadata().ok_or("no group")?;
    producer.send_offsets_to_transaction(&consumer.position()?, &metadata, PATIENCE)?;
    producer.commit_transaction(PATIENCE)?;
    Ok(Value::Null)
}

fn join(request: &Value) -> Result<Member, Box<dyn Error>> {
    let protocol = text(request, "protocol");
    let settings: &[(&str, &str)] = match protocol {
        "consumer" => &[("group.protocol", "consumer")],
        _ => &[("heartbeat.interval.ms", "200")],
    };
    let consumer = consumer(request, text(request, "group"), settings)?;
    consumer.subscribe(&[text(request, "topic")])?;
    let (values, stopping) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (inbox, stop) = (values.clone(), stopping.clone());
    let thread = thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // A broker that is away comes back, or the test fails.
            if let Some(Ok(message)) = consumer.poll(Duration::from_millis(20)) {
                let value = String::from_utf8_lossy(message.payload().unwrap_or(b"")).into_owned();
                inbox.lock().unwrap().push(value);
            }
        }
        let nothing = rdkafka::error::KafkaError::ConsumerCommit(rdkafka::error::RDKafkaErrorCode::NoOffset);
        match consumer.commit_consumer_state(CommitMode::Sync) {
            Err(error) if error != nothing => Err(error.to_string()),
            _ => Ok(()),
        }
    });
    Ok(Member { values, stopping, thread })
}

fn answer(request: &Value, members: &mut HashMap<String, Member>) -> Answer {
    let name = text(request, "member").to_owned();
    match text(request, "op") {
        "topic_create" | "topic_grow" | "topic_delete" => administer(request),
        "topic_partitions" => count_partitions(request),
        "offset_at" => find_offset(request),
        "produce" => produce(request),
        "read" => read(request),
        "transact" => transact(request),
        "pipe" => pipe(request),
        "join" => {
            members.insert(name, join(request)?);
            Ok(Value::Null)
        }
        "poll" => {
            let member = members.get(&name).ok_or("no such member")?;
            if member.values.lock().unwrap().is_empty() {
                thread::sleep(A_MOMENT);
            }
            let values: Vec<String> = member.values.lock().unwrap().drain(..).collect();
            Ok(json!(values))
        }
        "leave" => {
            let member = members.remove(&name).ok_or("no such member")?;
            member.stopping.store(true, Ordering::Relaxed);
            member.thread.join().map_err(|_| "the member's thread panicked")??;
            Ok(Value::Null)
        }
        other => Err(format!("rdkafka does not know {other:?}").into()),
    }
}

fn main() -> io::Result<()> {
    let mut members = HashMap::new();
    for line in io::stdin().lock().lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(request) => answer(&request, &mut members),
            Err(error) => Err(error.into()),
        };
        let reply = match reply {
            Ok(value) => json!({ "answer": value }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        writeln!(io::stdout(), "{reply}")?;
        io::stdout().flush()?;
    }
    Ok(())
}
