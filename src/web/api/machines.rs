//! The machines of the records, and the last look at the clouds. `?look=1` asks them now.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::answer::of;
use super::reads::newest;
use crate::app::Fault;
use crate::app::overview::machine_watch::{self, CloudLook};
use crate::app::overview::machines::{RecordedMachine, recorded};
use crate::market::elapsed;
use crate::web::site::Site;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WhichLook {
    /// With 1, the clouds are asked now. A look of the last 10 s is not repeated.
    #[param(minimum = 0, maximum = 1, default = 0)]
    look: Option<u8>,
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
    of(list(&site, which.look == Some(1)).await)
}

async fn list(site: &Arc<Site>, asks: bool) -> Result<MachineList, Fault> {
    let overview = newest(site).await?;
    let look = if asks {
        // Programs that ask at once wait for one look.
        let _one = site.cloud_look.lock().await;
        let now = site.clock.now();
        Some(machine_watch::look_now(&site.store, &site.workstation, now).await?)
    } else {
        overview.look.clone()
    };
    let now = site.clock.now();
    Ok(MachineList {
        at: overview.at,
        recorded: recorded(&overview),
        look_age_secs: look.as_ref().map(|look| elapsed(look.at, now).as_secs()),
        look,
    })
}
