//! The machine under the job: its state, its tags, the cloud's notices, and what is measured on it.
//!
//! Pure nouns. A [`Sample`] is what the sensors read at one moment; [`Rates`] come from two samples and are what
//! policies see. A reading that could not be taken is [`Reading::Unknown`], never zero. What must never live here: how a
//! number is read (that is `adapters`), what it means (that is `policy`).

mod notice;
mod other_cpu;
mod rates;
mod reading;
mod sample;
mod state;
mod status;
mod tags;

pub use notice::{Notice, NoticeKind};
pub use other_cpu::RestCpu;
pub use rates::{Rates, rates};
pub use reading::Reading;
pub use sample::{GpuSample, IoCounters, Marks, Sample};
pub use state::{InstanceState, InstanceView, MachineRef};
pub use status::{GpuStatus, Status};
pub use tags::{OWNER_TAG, TAG_PREFIX, Tags, TagsError, owned_by};
