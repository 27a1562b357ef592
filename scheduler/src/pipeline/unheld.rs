//! Queues that hold nothing: their messages go back at the first deferral, with its reason.
//!
//! Their sender waits for an answer, and keeps the task: holding it here as well could create it
//! after the answer was given. They are leased from whatever the room, since a full backend is an
//! answer too, and what is wrong with their messages says nothing of the farm, so that it does not
//! count for the fuse.

use std::sync::Arc;

use futures::FutureExt;

use super::book::Ticket;
use super::view::waiting;
use super::{Event, Pipeline};
use crate::domain::name::TaskHash;
use crate::domain::outcome::{Deferral, Scope};
use crate::queue::LeaseId;

/// When a task that waits here already is worth another try.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(30);

impl Pipeline {
    /// Whether this queue's messages may be held.
    pub(super) fn holds(&self, queue: usize) -> bool {
        self.deps.queues[queue].hold
    }

    /// Gives back those messages of a task, held for this reason, that may not be held.
    pub(super) fn give_back_unheld(&mut self, hash: TaskHash, why: &Deferral) {
        let Some(entry) = self.book.get(&hash) else { return };
        let (held, back): (Vec<Ticket>, Vec<Ticket>) =
            entry.tickets.iter().cloned().partition(|ticket| self.holds(ticket.queue));
        if back.is_empty() {
            return;
        }
        if held.is_empty() {
            if let Some(entry) = self.book.remove(&hash) {
                self.remember(hash, &entry);
            }
        } else if let Some(entry) = self.book.get_mut(&hash) {
            entry.tickets = held;
        }
        for ticket in back {
            let source = Arc::clone(&self.deps.queues[ticket.queue].queue);
            let (lease, why): (LeaseId, Deferral) = (ticket.lease.clone(), why.clone());
            let call = async move {
                let _ = source.defer(std::slice::from_ref(&lease), &why).await;
                Event::Released { queue: ticket.queue, tickets: vec![ticket] }
            };
            self.calls.push(call.boxed());
        }
    }

    /// A message came whose task waits already, for another queue's sake: its sender is told why.
    pub(super) fn answer_if_waiting(&mut self, hash: TaskHash) {
        let Some((kind, detail)) = self.book.get(&hash).and_then(waiting).cloned() else { return };
        let why = Deferral::new(Scope::Task, kind, detail, AGAIN);
        self.give_back_unheld(hash, &why);
    }
}
