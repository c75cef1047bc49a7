//! The machines of the records, and the last look at the clouds. `?look=1` asks them now.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::of;
use super::reads::newest;
use crate::app::Fault;
use crate::app::overview::machine_watch::{self, CloudLook};
use crate::app::overview::machines::{RecordedMachine, recorded};
use crate::app::overview::overview::{Overview, has_aws};
use crate::market::elapsed;
use crate::web::site::Site;

/// A program that asks in a loop must not ask each region in each turn. By the end of a look: a
/// silent region takes half a minute.
const REPEATED_AFTER: Duration = Duration::from_secs(10);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WhichLook {
    /// With 1, the clouds are asked now. A look of the last 10 s is not repeated.
    #[param(minimum = 0, maximum = 1, default = 0)]
    #[serde(default, deserialize_with = "zero_or_one")]
    look: u8,
}

fn zero_or_one<'de, D: Deserializer<'de>>(query: D) -> Result<u8, D::Error> {
    let number = u8::deserialize(query)?;
    if number > 1 {
        return Err(D::Error::custom("`look` is 0 or 1"));
    }
    Ok(number)
}

/// The machines that bill, and how old each part of the answer is.
#[derive(Serialize, ToSchema)]
pub struct MachineList {
    /// When the records were read.
    at: Timestamp,
    /// The machines of unfinished jobs, by the records.
    recorded: Vec<RecordedMachine>,
    /// The machines that no job needs, by the clouds. Null: the clouds were never asked.
    look: Option<CloudLook>,
    look_age_secs: Option<u64>,
}

/// The machines of the records, and those that no job needs by the last look at the clouds
#[utoipa::path(get, path = "/api/v1/machines", params(WhichLook), responses((status = 200, body = MachineList)))]
pub async fn machines(State(site): State<Arc<Site>>, Query(which): Query<WhichLook>) -> Response {
    of(list(&site, which.look == 1).await)
}

async fn list(site: &Arc<Site>, asks: bool) -> Result<MachineList, Fault> {
    let overview = newest(site).await?;
    let look = if asks { Some(look_now(site, &overview).await?) } else { overview.look.clone() };
    let now = site.clock.now();
    Ok(MachineList {
        at: overview.at,
        recorded: recorded(&overview),
        look_age_secs: look.as_ref().map(|look| elapsed(look.at, now).as_secs()),
        look,
    })
}

/// Programs that ask at once wait for one look.
async fn look_now(site: &Site, overview: &Overview) -> Result<CloudLook, Fault> {
    let mut last = site.cloud_look.lock().await;
    let asked = site.clock.now();
    if let Some((ended, look)) = last.as_ref()
        && elapsed(*ended, asked) < REPEATED_AFTER
    {
        return Ok(look.clone());
    }
    let has_aws = has_aws(overview.jobs.iter().map(|row| &row.summary));
    let look = machine_watch::look_now(&site.store, &site.workstation, has_aws, asked).await?;
    *last = Some((site.clock.now(), look.clone()));
    Ok(look)
}
