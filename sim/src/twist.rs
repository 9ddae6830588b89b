//! A journal with a twist: everything is passed on but for the calls a test wants to see or to spoil. Protections are
//! taken away this way, outside the driver, to show that the simulator notices.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use longrein_core::ids::{Digest, RunId, Seq};
use longrein_core::input::Input;
use longrein_ports::{
    AppendError, Batch, BoxFuture, Claim, ClaimError, Committed, Create, Journal, JournalError, KeyId, KeyRow, Listed,
    Posted, Recorded, VerifyReport, Worker,
};

/// The calls that can be twisted; each passes on by itself.
pub trait Twist: Send + Sync {
    fn claimed(&self, _: &Claim) {}

    fn renew<'a>(&'a self, inner: &'a dyn Journal, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        inner.renew(claim)
    }

    fn append<'a>(
        &'a self,
        inner: &'a dyn Journal,
        claim: &'a Claim,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Committed, AppendError>> {
        inner.append(claim, batch)
    }

    /// What the driver sees of the inbox.
    fn inbox(&self, _: &RunId, inputs: Vec<Input>) -> Vec<Input> {
        inputs
    }

    /// What the driver sees of a key row.
    fn key(&self, row: Option<KeyRow>) -> Option<KeyRow> {
        row
    }
}

pub struct Twisted {
    pub inner: Arc<dyn Journal>,
    pub twist: Arc<dyn Twist>,
}

impl Journal for Twisted {
    fn claim<'a>(
        &'a self,
        run: &'a RunId,
        worker: &'a Worker,
        workspace: Option<&'a str>,
        create: Create,
    ) -> BoxFuture<'a, Result<Claim, ClaimError>> {
        Box::pin(async move {
            let claim = self.inner.claim(run, worker, workspace, create).await?;
            self.twist.claimed(&claim);
            Ok(claim)
        })
    }
    fn renew<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Duration, AppendError>> {
        self.twist.renew(self.inner.as_ref(), claim)
    }
    fn release<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<(), JournalError>> {
        self.inner.release(claim)
    }
    fn append<'a>(&'a self, claim: &'a Claim, batch: &'a Batch) -> BoxFuture<'a, Result<Committed, AppendError>> {
        self.twist.append(self.inner.as_ref(), claim, batch)
    }
    fn read<'a>(
        &'a self,
        run: &'a RunId,
        after: Seq,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Recorded>, JournalError>> {
        self.inner.read(run, after, limit)
    }
    fn runs(&self) -> BoxFuture<'_, Result<Vec<Listed>, JournalError>> {
        self.inner.runs()
    }
    fn row<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<Listed>, JournalError>> {
        self.inner.row(run)
    }
    fn post_with<'a>(
        &'a self,
        run: &'a RunId,
        input: &'a Input,
        blobs: &'a [(Digest, Bytes)],
    ) -> BoxFuture<'a, Result<Posted, ClaimError>> {
        self.inner.post_with(run, input, blobs)
    }
    fn inbox<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<Input>, JournalError>> {
        Box::pin(async move { Ok(self.twist.inbox(run, self.inner.inbox(run).await?)) })
    }
    fn inbox_changed<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, ()> {
        self.inner.inbox_changed(run)
    }
    fn key<'a>(&'a self, id: &'a KeyId) -> BoxFuture<'a, Result<Option<KeyRow>, JournalError>> {
        Box::pin(async move { Ok(self.twist.key(self.inner.key(id).await?)) })
    }
    fn blob<'a>(&'a self, digest: &'a Digest) -> BoxFuture<'a, Result<Option<Bytes>, JournalError>> {
        self.inner.blob(digest)
    }
    fn verify<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Option<VerifyReport>, JournalError>> {
        self.inner.verify(run)
    }
}
