//! The machine of a job: its state, its tags, the cloud's notices, and the measurements on it.
//!
//! A [`Sample`] is one reading of all sensors. [`Rates`] come from two samples; policies see only
//! rates. A failed reading is [`Reading::Unknown`], never zero. `adapters` read the numbers,
//! `policy` judges them.

mod gpu_health;
mod notice;
mod other_cpu;
mod rates;
mod reading;
mod sample;
mod sample_rows;
mod state;
mod status;
mod tags;

pub use gpu_health::GpuHealth;
pub use notice::{Notice, NoticeKind};
pub use other_cpu::RestCpu;
pub use rates::{Rates, rates};
pub use reading::Reading;
pub use sample::{GpuProcess, GpuSample, IoCounters, Marks, Sample};
pub use sample_rows::sample_rows;
pub use state::{InstanceState, InstanceView, MachineRef};
pub use status::{AttentionKind, GpuStatus, Status};
pub use tags::{
    OWNER_TAG, RANKS_TAG, TAG_PREFIX, Tags, TagsError, owned_by, tags_of_launch, tags_of_rank,
};
