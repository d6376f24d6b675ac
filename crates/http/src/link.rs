//! One connection that HTTP is spoken over, and the idle ones that are kept.

use std::fmt;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_seams::ByteStream;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::ext::ReasonPhrase;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use crate::message::{Answer, Failure};

/// A connection. It moves only while an exchange is polled: no task of its own stands behind it.
pub(crate) struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: http1::Connection<TokioIo<Box<dyn ByteStream>>, Full<Bytes>>,
}

impl Link {
    pub(crate) async fn new(stream: Box<dyn ByteStream>) -> Result<Self, Failure> {
        // Exchanges no byte: HTTP/1 has no greeting.
        let made = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = made.map_err(|error| Failure::NotSent(causes(&error)))?;
        Ok(Self { sender, connection })
    }

    /// Whether it can take a request, as far as can be told from here.
    async fn is_ready(&mut self) -> bool {
        poll_fn(|context| {
            // Sees what has arrived in the meantime: the end, or bytes that nobody asked for.
            let is_over = Pin::new(&mut self.connection).poll(context).is_ready();
            Poll::Ready(!is_over && self.sender.is_ready())
        })
        .await
    }

    /// Sends the request and gives the head of its answer; the rest comes as it comes.
    pub(crate) async fn open(mut self, request: Request<Full<Bytes>>) -> Result<Stream, Failure> {
        if !self.is_ready().await {
            return Err(Failure::NotSent("the connection was closed before anything was sent".to_owned()));
        }
        let Self { mut sender, mut connection } = self;
        let sent = {
            let sending = pin!(sender.try_send_request(request));
            match select(sending, &mut connection).await {
                Either::Left((answer, _)) => answer,
                Either::Right((_, sending)) => sending.await,
            }
        };
        let response = sent.map_err(|error| match error.message() {
            Some(_) => Failure::NotSent(causes(error.error())),
            None => Failure::Lost(causes(error.error())),
        })?;
        let (head, body) = response.into_parts();
        Ok(Stream { status: head.status, headers: head.headers, body, connection, is_over: false, _sender: sender })
    }

    /// Sends the request and reads the answer to its end. Gives the link back if it can be used again.
    ///
    /// [`Failure::NotSent`] only if hyper gives the request back, which it does before it has written any of it.
    pub(crate) async fn exchange(
        mut self,
        request: Request<Full<Bytes>>,
        limit: usize,
    ) -> Result<(Answer, Option<Self>), Failure> {
        if !self.is_ready().await {
            return Err(Failure::NotSent("the connection was closed before anything was sent".to_owned()));
        }
        let (answer, is_over) = self.converse(request, limit).await?;
        let is_usable = !is_over && self.is_ready().await;
        Ok((answer, is_usable.then_some(self)))
    }

    /// The answer, and whether the connection has come to its end.
    async fn converse(&mut self, request: Request<Full<Bytes>>, limit: usize) -> Result<(Answer, bool), Failure> {
        let Self { sender, connection } = self;
        let conversation = pin!(async {
            match sender.try_send_request(request).await {
                Ok(response) => read(response, limit).await,
                Err(error) if error.message().is_some() => Err(Failure::NotSent(causes(error.error()))),
                Err(error) => Err(Failure::Lost(causes(error.error()))),
            }
        });
        match select(conversation, connection).await {
            Either::Left((answer, _)) => Ok((answer?, false)),
            // The connection is at its end; what it has brought is still to be taken.
            Either::Right((_, conversation)) => Ok((conversation.await?, true)),
        }
    }
}

/// An answer that comes bit by bit, for as long as the other end has something to say.
pub struct Stream {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    connection: http1::Connection<TokioIo<Box<dyn ByteStream>>, Full<Bytes>>,
    /// Whether the connection has come to its end; what it has brought is still to be taken.
    is_over: bool,
    /// Without it the connection would be closed.
    _sender: SendRequest<Full<Bytes>>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Stream {
    /// The next piece, or nothing at the end. Waits as long as it takes: whoever cannot wait drops the future.
    ///
    /// # Errors
    ///
    /// [`Failure::Lost`] if the connection broke.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = if self.is_over {
                self.body.frame().await
            } else {
                let (taken, is_over) = match select(self.body.frame(), &mut self.connection).await {
                    Either::Left((frame, _)) => (Some(frame), false),
                    Either::Right(_) => (None, true),
                };
                self.is_over = is_over;
                match taken {
                    Some(frame) => frame,
                    None => continue,
                }
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::Lost(causes(&error))),
                // Trailers say nothing here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

/// Reads the answer to its end.
async fn read(response: hyper::Response<Incoming>, limit: usize) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    if body.size_hint().lower() > limit as u64 {
        return Err(Failure::TooLarge);
    }
    let body = Limited::new(body, limit).collect().await.map_err(|error| match error.downcast::<hyper::Error>() {
        Ok(error) => Failure::Lost(causes(&*error)),
        Err(error) if error.is::<LengthLimitError>() => Failure::TooLarge,
        Err(error) => Failure::Lost(error.to_string()),
    })?;
    let reason = head.extensions.get::<ReasonPhrase>().map(|reason| String::from_utf8_lossy(reason.as_bytes()));
    let reason = reason.filter(|reason| !reason.is_empty()).map(std::borrow::Cow::into_owned);
    Ok(Answer { status: head.status, reason, headers: head.headers, body: body.to_bytes() })
}

/// An error with what lies beneath it. That a connection just ends is said in plain words: TLS has a page about it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof) {
            return "the connection was closed before a whole answer came".to_owned();
        }
        told = format!("{told}: {error}");
        cause = error.source();
    }
    told
}

/// Connections that wait to be used again, the longest idle first. As nothing runs in the background, those whose time
/// has passed are closed when the next one is looked for or kept.
pub(crate) struct Idle {
    time: Duration,
    most: usize,
    links: Mutex<Vec<(Duration, Link)>>,
}

impl Idle {
    pub(crate) fn new(time: Duration, most: usize) -> Self {
        Self { time, most, links: Mutex::default() }
    }

    /// The one that was used last.
    pub(crate) fn take(&self, now: Duration) -> Option<Link> {
        self.current(now).pop().map(|(_, link)| link)
    }

    pub(crate) fn keep(&self, link: Link, now: Duration) {
        let mut links = self.current(now);
        links.push((now, link));
        if links.len() > self.most {
            links.remove(0);
        }
    }

    /// Those whose time has not passed.
    fn current(&self, now: Duration) -> MutexGuard<'_, Vec<(Duration, Link)>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|(since, _)| now.saturating_sub(*since) < self.time);
        links
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Context;

    use castle_testbed::in_virtual_time;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    /// A connection that ends at the read after so many, and counts the bytes that were sent until then.
    struct Ending {
        reads_left: usize,
        sent: Arc<AtomicUsize>,
    }

    impl AsyncRead for Ending {
        fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.reads_left == 0 {
                return Poll::Ready(Ok(()));
            }
            self.reads_left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    impl AsyncWrite for Ending {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.sent.fetch_add(bytes.len(), Ordering::Relaxed);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Goal: whenever a connection ends, the failure tells the truth about what was sent, also if it ends between the
    /// look at it and the sending. Method: it ends at each of the first reads.
    #[test]
    fn the_failure_tells_whether_anything_was_sent() {
        let failures: Vec<bool> = (0..5)
            .map(|reads_left| {
                let sent = Arc::new(AtomicUsize::new(0));
                let stream = Box::new(Ending { reads_left, sent: sent.clone() });
                let request = Request::get("/").header("host", "h").body(Full::default()).unwrap();
                let result = in_virtual_time(async |_| Link::new(stream).await?.exchange(request, 10).await);
                let is_sent = match result.map(|_| ()).unwrap_err() {
                    Failure::NotSent(_) => false,
                    Failure::Lost(_) => true,
                    other => panic!("{other:?}"),
                };
                assert_eq!(is_sent, sent.load(Ordering::Relaxed) > 0, "after {reads_left} reads");
                is_sent
            })
            .collect();
        assert_eq!(failures, [false, false, true, true, true]);
    }
}
