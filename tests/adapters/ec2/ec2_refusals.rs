//! Every documented code of EC2, met by a launch: one call, no machine, and the reaction of the
//! table.

use jiff::SignedDuration;
use lamplighter::market::Market;
use lamplighter::ports::Cloud;

use crate::aws::{chain, cloud, kind, machine, plan};
use lamp_test_support::ec2::{FalseEc2, Fault, Options};

const ROWS: &[(&[&str], &str)] = &[
    (
        &[
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "UnfulfillableCapacity",
            "ReservationCapacityExceeded",
        ],
        "no capacity",
    ),
    (&["InsufficientFreeAddressesInSubnet"], "no free address in the zone"),
    (&["SpotMaxPriceTooLow"], "the bid is below the price"),
    (
        &["MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"],
        "the quota is used up",
    ),
    (&["VolumeLimitExceeded", "MaxIOPSLimitExceeded"], "the limit of disks is reached"),
    (&["Unsupported"], "not sold there"),
    (&["RequestLimitExceeded", "EC2ThrottledException", "Throttling"], "throttled"),
    (&["InternalError", "Unavailable"], "ambiguous"),
    (&["IdempotentParameterMismatch"], "mismatch"),
    (&["IdempotentInstanceTerminated"], "its machine has ended"),
    (&["AuthFailure", "SignatureDoesNotMatch", "RequestExpired"], "denied"),
    (&["UnauthorizedOperation", "ExpiredToken", "InvalidClientTokenId"], "denied"),
    (
        &["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
        "the role for spot machines is missing",
    ),
    (
        &["InvalidParameterCombination", "InvalidAMIID.NotFound", "InvalidUserData.Malformed"],
        "invalid",
    ),
    (&["PendingVerification"], "the account is still being verified for the region"),
    (&["Blocked", "OptInRequired"], "denied"),
    (&["SomethingNobodyKnows"], "invalid"),
];

#[tokio::test]
async fn launch_refusal_has_its_reaction_and_no_second_call() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    for (codes, expected) in ROWS {
        for code in *codes {
            // It would succeed the second time: who asks twice is caught.
            ec2.fault(Fault::code("RunInstances", code));
            let error = aws
                .launch(&plan(&format!("token-{code}"), Market::OnDemand))
                .await
                .expect_err(code);
            assert_eq!(kind(&error), *expected, "{code}: {}", chain(&error));
            let text = chain(&error);
            assert!(
                *expected == "throttled" || text.contains(code),
                "`{text}` does not name {code}"
            );
            assert_eq!(
                ec2.take_calls().iter().filter(|call| call.action == "RunInstances").count(),
                1,
                "{code}"
            );
        }
    }
    assert_eq!(ec2.instances().len(), 0);
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_named() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    ec2.fault(Fault::code("RunInstances", "AuthFailure").times(2));
    let text = chain(&aws.launch(&plan("token-1", Market::OnDemand)).await.unwrap_err());
    assert!(!text.contains("clock"), "{text}");
    ec2.clock_ahead(SignedDuration::from_mins(20));
    let text = chain(&aws.launch(&plan("token-1", Market::OnDemand)).await.unwrap_err());
    assert!(
        text.contains("the clock of this computer is") && text.contains("min behind AWS's"),
        "{text}"
    );
}

#[tokio::test]
async fn missing_spot_role_is_told_with_its_cure() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.fault(Fault::code("RunInstances", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"));
    let text = chain(&cloud(&ec2).launch(&plan("token-1", Market::Spot)).await.unwrap_err());
    assert!(text.starts_with("the role for spot machines is missing for this account, which has bought none yet: `aws iam create"), "{text}");
    assert!(
        text.contains("create-service-linked-role --aws-service-name spot.amazonaws.com")
            && !text.contains("capacity"),
        "{text}"
    );
    // A dry run that says so is no, and not unknown.
    ec2.fault(Fault::code("RunInstances", "AuthFailure.ServiceLinkedRoleCreationNotPermitted"));
    let error = cloud(&ec2).permitted(&plan("token-1", Market::Spot)).await.unwrap_err();
    assert!(
        kind(&error) == "denied" && chain(&error).contains("AWSServiceRoleForEC2Spot"),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn new_profile_is_waited_for_and_a_wrong_one_is_not() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    // Its words are those of an unknown profile.
    ec2.fault(Fault::code("RunInstances", "InvalidParameterValue").times(2));
    let mut plan = plan("token-1", Market::OnDemand);
    assert_eq!(kind(&aws.launch(&plan).await.unwrap_err()), "ambiguous");
    plan.created -= SignedDuration::from_mins(3);
    let error = aws.launch(&plan).await.unwrap_err();
    assert_eq!(kind(&error), "invalid");
    assert!(error.to_string().contains("`lamp init aws` makes one"), "{error}");
    // Another parameter is wrong for ever.
    ec2.fault(
        Fault::code("RunInstances", "InvalidParameterValue")
            .saying("User data is limited to 16384 bytes"),
    );
    assert_eq!(
        kind(&aws.launch(&crate::aws::plan("token-2", Market::OnDemand)).await.unwrap_err()),
        "invalid"
    );
}

#[tokio::test]
async fn bid_below_the_price_is_refused_by_the_market_itself() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    ec2.spot_prices("g5.xlarge", "us-east-1a", &[(SignedDuration::from_hours(1), 0.9)]);
    let error = cloud(&ec2).launch(&plan("token-1", Market::Spot)).await.unwrap_err();
    assert_eq!(kind(&error), "the bid is below the price", "{error}");
}

#[tokio::test]
async fn termination_is_an_error_if_refused_and_needs_no_describe() {
    let Some(ec2) = FalseEc2::start(Options::default()) else { return };
    let aws = cloud(&ec2);
    let id = crate::aws::launched(&aws, "token-1", Market::OnDemand).await;
    for (code, expected) in [
        ("UnauthorizedOperation", "denied"),
        ("ExpiredToken", "denied"),
        ("IncorrectInstanceState", "ambiguous"),
        ("InvalidInstanceID.NotFound", "ambiguous"),
    ] {
        ec2.fault(Fault::code("TerminateInstances", code));
        assert_eq!(kind(&aws.terminate(&machine(&id)).await.expect_err(code)), expected, "{code}");
    }
    // Describe is sick: the end is asked for all the same.
    ec2.fault(Fault::code("Describe*", "UnauthorizedOperation").always());
    aws.terminate(&machine(&id)).await.unwrap();
    assert!(crate::aws::is_going(ec2.instance(&id).state));
}
