//! A thousand machines of others and a hundred thousand decisions of the shipped code: not one of
//! theirs is touched.
//!
//! The account, the job root and every draw come from one seed. Ours are there too, and are ended:
//! a sweep that does nothing would pass everything else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lamplighter::account::lookup::{
    BucketFound, Found, GroupFound, ProfileFound, RegionFound, RoleFound, SetupFound,
};
use lamplighter::account::setup::{InUse, SetupNames};
use lamplighter::controller::{Controller, Judged};
use lamplighter::instance::{InstanceState, InstanceView, Tags};
use lamplighter::job::{AttemptNo, BOOT, JobId, Plan, RECORD_FORMAT, Wish};
use lamplighter::jobdir::JobDir;
use lamplighter::market::{self, Arch, Market, Offer, Region, Span, UsdPerHour, Zone};
use lamplighter::policy::account::setup_plan::plan_removal;
use lamplighter::policy::lifecycle::orphan::OrphanVerdict;
use lamplighter::ports::{Clock, Cloud};

use crate::OWNER;
use crate::sweep::crowded_account::{Dice, Town, disk};
use lamp_test_support::faulty_store::FaultyStore;
use lamp_test_support::virtual_clock::{VirtualClock, simulate};

const FOREIGN: usize = 1000;
const OURS: usize = 100;
const REGIONS: usize = 400;
/// Of a hundred, 67 concern machines, which makes 100,000; 15 clear what is left over, and 18 take
/// a set-up away.
const OPERATIONS: usize = 150_000;

/// Names of owners that are nearly ours.
const OTHERS: &[&str] = &[
    "Me",
    "ME",
    "mE",
    "me ",
    " me",
    "me\u{200b}",
    "m\u{435}",
    "m",
    "mee",
    "m*",
    "m?",
    "*",
    "",
    "me,you",
    "me@111122223333",
    "you",
];

fn region(number: usize) -> Region {
    Region::new(format!("region-{number}"))
}

fn job(number: usize) -> JobId {
    let letters = b"23456789bcdfghjkmnpqrstvwxz";
    let (tens, ones) =
        (letters[number / letters.len()] as char, letters[number % letters.len()] as char);
    format!("digits-2222{tens}{ones}").parse().unwrap()
}

fn tags(owner: &str, number: usize, kill_at: Option<Timestamp>) -> Tags {
    Tags {
        owner: owner.into(),
        job: job(number),
        attempt: AttemptNo::FIRST,
        lease: Span::from_secs(1800),
        boot: BOOT,
        kill_at,
    }
}

type TagMap = BTreeMap<String, String>;

/// Our own tags but for one thing.
fn look_alike(dice: &mut Dice, ours: &TagMap) -> TagMap {
    let mut map = ours.clone();
    let key = |word: &str| format!("lamplighter:{word}");
    match dice.below(6) {
        0 => drop(map.insert(key("owner"), (*dice.pick(OTHERS)).to_owned())),
        1 => drop(map.remove(&key(dice.pick::<&str>(&["owner", "job", "attempt", "lease-s"])))),
        2 => drop(map.insert(
            key(dice.pick::<&str>(&["job", "attempt", "lease-s", "kill-at"])),
            (*dice.pick(&["", "x y", "-1", "1e9 s", "Soon"])).to_owned(),
        )),
        // The same words under other keys: upper case, another prefix, none.
        3 => {
            let change = *dice.pick(&[
                (|key| key.to_uppercase()) as fn(&str) -> String,
                |key| key.replace("lamplighter:", ""),
                |key| format!("{key} "),
            ]);
            map = map.iter().map(|(key, value)| (change(key), value.clone())).collect();
        }
        4 => map = BTreeMap::from([("Name".to_owned(), map[&key("job")].clone())]),
        _ => {
            map.insert(key("owner"), (*dice.pick(OTHERS)).to_owned());
            map.insert("Name".into(), "me".into());
            map.insert("Lamplighter:Owner".into(), OWNER.into());
        }
    }
    map
}

fn plan(number: usize, at: Region, created: Timestamp, kill_at: Option<Timestamp>) -> Plan {
    let tags = tags(OWNER, number, kill_at);
    Plan {
        format: RECORD_FORMAT,
        job: tags.job.clone(),
        attempt: tags.attempt,
        created,
        controller: "test".into(),
        offer: Offer {
            cloud: market::CloudKind::Aws,
            region: at,
            zone: Zone::new("a"),
            instance_type: "g5.xlarge".into(),
            gpus: 1,
            gpu_model: None,
            gpu_memory_mib: None,
            vcpus: 4,
            arch: Arch::X86_64,
            market: Market::OnDemand,
            price: UsdPerHour::ZERO,
            extras: UsdPerHour::ZERO,
            on_demand: None,
        },
        reasons: vec![],
        rejected: vec![],
        bid: None,
        launch: None,
        most_usd: None,
        most_any_usd: None,
        most_job_usd: None,
        client_token: format!("token-{number}"),
        kill_at,
        lease: tags.lease,
        boot: tags.boot,
        resume_from: None,
        launch_by: None,
        starts: None,
        gang: None,
        followers: 0,
        tags: tags.to_map(),
    }
}

/// Jobs of ours with their machines, and the thousand around them: each has our job's name, our
/// launch's token and our age.
async fn build(clock: &Arc<VirtualClock>, store: &Arc<FaultyStore>, dice: &mut Dice, town: &Town) {
    let launched = clock.now();
    let caps: Vec<Option<Timestamp>> = vec![
        None,
        Some(launched + Duration::from_secs(3600)),
        Some(launched + Duration::from_secs(90 * 86_400)),
    ];
    for number in 0..OURS {
        let (at, cap) = (region(dice.below(REGIONS)), caps[number % caps.len()]);
        let mut spec = crate::spec(launched);
        spec.job = job(number);
        let dir = JobDir::new(store.clone(), spec.job.clone());
        let plan = plan(number, at.clone(), launched, cap);
        // Some are of another job root.
        if number % 10 != 9 {
            let _new = dir.create_spec(&spec).await.unwrap();
            let _new = dir.create_plan(&plan).await.unwrap();
        }
        if number % 4 == 0 {
            dir.add_request(
                if number % 8 == 0 { Wish::Cancel } else { Wish::Stop },
                "somebody",
                launched,
            )
            .await
            .unwrap();
        }
        if number % 4 == 1 {
            dir.add_request(
                Wish::Extend {
                    time: Some(Span::from_secs(7200)),
                    budget: None,
                    fallback_cost: None,
                },
                "somebody",
                launched,
            )
            .await
            .unwrap();
        }
        town.settle(
            format!("i-ours-{number}"),
            at.clone(),
            plan.tags.clone(),
            Some(plan.tags.clone()),
            launched,
            Some(plan.client_token.clone()),
        );
        town.leave(disk(&format!("vol-ours-{number}"), &at, true, Some(job(number))), true);
    }
    for number in 0..FOREIGN {
        let of = dice.below(OURS);
        let ours = tags(OWNER, of, *dice.pick(&caps)).to_map();
        let map = look_alike(dice, &ours);
        // Every fifth is ours now and somebody else's in a moment.
        let mine = (number % 5 == 0).then(|| ours.clone());
        let token = (number % 3 > 0).then(|| format!("token-{of}"));
        let at = region(dice.below(REGIONS));
        town.settle(format!("i-a{number}"), at.clone(), map, mine, launched, token);
        town.leave(disk(&format!("vol-foreign-{number}"), &at, false, Some(job(of))), false);
    }
}

/// A machine of which somebody says that it is an orphan, whosever it is.
fn accused(town: &Town, dice: &mut Dice, ids: &[String]) -> Judged {
    let id = dice.pick(ids);
    let ledger = town.ledger.lock().unwrap();
    let house = &ledger.houses[id];
    let view = InstanceView {
        id: id.clone(),
        cloud: market::CloudKind::Aws,
        region: house.region.clone(),
        instance_type: "g5.xlarge".into(),
        market: Market::OnDemand,
        state: InstanceState::Running,
        tags: Tags::from_map(&house.tags).unwrap_or_else(|_| tags(OWNER, 0, None)),
        client_token: None,
        launched: Timestamp::UNIX_EPOCH,
        ended: None,
        state_reason: None,
    };
    Judged { view, verdict: OrphanVerdict::Orphan { why: "accused".into() } }
}

/// `lamp uninit` in an account where everything has our names and somebody else's tag.
fn removes_nothing(dice: &mut Dice) {
    let names = SetupNames {
        owner: OWNER.into(),
        regions: vec!["us-east-1".into()],
        bucket: "jobs".into(),
        bucket_is_ours_by_name: true,
        prefix: String::new(),
        role: "lamplighter-box".into(),
        group: "lamplighter".into(),
        session_manager: false,
        gangs: false,
        secrets: vec![],
    };
    let mut owner = || (dice.below(4) > 0).then(|| (*dice.pick(OTHERS)).to_owned());
    let group = GroupFound { id: "sg-1".into(), owner: owner(), rules_in: 0 };
    let elsewhere = vec![GroupFound { id: "sg-2".into(), owner: owner(), rules_in: 0 }];
    let found = SetupFound {
        bucket: Found::There(BucketFound { owner: owner(), ..BucketFound::default() }),
        role: Found::There(RoleFound { owner: owner(), ..RoleFound::default() }),
        profile: Found::There(ProfileFound { owner: owner(), roles: vec![] }),
        regions: vec![RegionFound {
            region: "us-east-1".into(),
            vpc: Found::Nothing,
            by_subnets: false,
            group: Found::There(group),
            gang_group: Found::Nothing,
            elsewhere,
            stands_in: None,
        }],
        spot_role: Found::There(()),
        alarm_role: Found::There(()),
    };
    let lines = plan_removal(&names, &found, &InUse::default(), true);
    assert!(lines.iter().all(|line| line.steps.is_empty()), "{found:?}: {lines:?}");
}

/// One decision of the shipped code, or a few.
async fn operate(controller: &Controller, town: &Town, dice: &mut Dice, ids: &[String]) {
    match dice.below(100) {
        0..45 => drop(controller.end_orphan(&accused(town, dice, ids)).await),
        // A person may have mistyped it.
        45..50 => drop(controller.end_stray(&accused(town, dice, ids).view.machine()).await),
        50..65 => {
            let places = [(market::CloudKind::Aws, region(dice.below(REGIONS)))].into();
            let found = controller.look_for_orphans(&places).await;
            for judged in found
                .machines
                .iter()
                .filter(|judged| matches!(judged.verdict, OrphanVerdict::Orphan { .. }))
            {
                drop(controller.end_orphan(judged).await);
            }
        }
        65..80 => {
            let left: Vec<_> = {
                let ledger = town.ledger.lock().unwrap();
                (0..2).map(|_| dice.pick(&ledger.left).0.clone()).collect()
            };
            for left in left {
                drop(controller.clear(&left).await);
            }
        }
        80..82 => drop(controller.look(&job(dice.below(OURS))).await),
        _ => removes_nothing(dice),
    }
}

#[test]
fn foreign_machines_survive_a_hundred_thousand_decisions() {
    simulate(async |clock: Arc<VirtualClock>| {
        let mut dice = Dice::new(0x1a3f_9e11);
        let store = FaultyStore::new(clock.clone());
        let town = Town::new(OWNER, Dice::new(0x77));
        build(&clock, &store, &mut dice, &town).await;
        let ids: Vec<String> = town.ledger.lock().unwrap().houses.keys().cloned().collect();
        assert!(town.regions_of_all().len() > REGIONS / 2 && ids.len() == FOREIGN + OURS);
        // Their leases have lapsed long ago, whosever they are.
        clock.sleep(Duration::from_secs(6 * 3600)).await;
        let controller = || {
            let cloud: Arc<dyn Cloud> = town.clone();
            Controller::new(
                store.clone(),
                [(market::CloudKind::Aws, cloud)].into(),
                clock.clone(),
                OWNER.into(),
                "test".into(),
                Zone::new("ws"),
            )
        };
        let one = controller();
        for number in 0..OPERATIONS {
            // The sweeper in the cloud looks at everything.
            if number % 10_000 == 5000 {
                let visit = controller()
                    .visit("lamplighter-sweeper-me", "test", Duration::from_secs(235))
                    .await;
                assert!(visit.regions as usize > REGIONS / 2, "{visit:?}");
            }
            operate(&one, &town, &mut dice, &ids).await;
            let wrongs = &town.ledger.lock().unwrap().wrongs;
            assert!(wrongs.is_empty(), "after {number} operations: {wrongs:?}");
        }
        let ledger = town.ledger.lock().unwrap();
        let ours = ledger.ended.iter().filter(|id| id.starts_with("i-ours")).count();
        assert!(ours > OURS / 2, "those of ours that nobody needs are ended: {ours}");
        assert!(
            ledger.refused > 100,
            "and some changed hands between the look and the act: {}",
            ledger.refused
        );
        assert!(ledger.cleared > 500, "{}", ledger.cleared);
    });
}
