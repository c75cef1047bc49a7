//! What somebody has set on the bucket that `lamp init aws` made: it stays.

#![cfg(feature = "aws")]

use crate::account::setup::User;

fn text(answer: (u16, Vec<u8>)) -> String {
    assert_eq!(answer.0, 200, "{}", String::from_utf8_lossy(&answer.1));
    String::from_utf8_lossy(&answer.1).into_owned()
}

fn count(text: &str, word: &str) -> usize {
    text.matches(word).count()
}

/// Both calls of S3 replace the whole set: what is there is read first.
#[test]
fn rules_and_tags_of_somebodys_own_stay_on_our_bucket() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.lamp(&["init", "aws", "--yes"]).code, 0);
    let (rules, tags) =
        (format!("/{}?lifecycle", user.bucket()), format!("/{}?tagging", user.bucket()));
    let rule = "<Rule><ID>exports</ID><Filter><Prefix>exports/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>90</Days></Expiration></Rule>";
    // An old version of ours, which somebody has switched off.
    let old = "<Rule><ID>old-versions</ID><Filter><Prefix></Prefix></Filter><Status>Disabled</Status>\
               <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration></Rule>";
    let theirs = format!("<LifecycleConfiguration>{rule}{old}</LifecycleConfiguration>");
    assert_eq!(user.ec2.s3("PUT", &rules, theirs.as_bytes()).0, 200);
    let tag =
        "<Tagging><TagSet><Tag><Key>cost-center</Key><Value>42</Value></Tag></TagSet></Tagging>";
    assert!(user.ec2.s3("PUT", &tags, tag.as_bytes()).0 < 300);

    let again = user.lamp(&["init", "aws", "--yes"]);
    assert_eq!(again.code, 0, "{again:?}");
    let (rules, tags) =
        (text(user.ec2.s3("GET", &rules, b"")), text(user.ec2.s3("GET", &tags, b"")));
    for id in ["exports", "broken-uploads", "old-versions"] {
        assert_eq!(count(&rules, &format!("<ID>{id}</ID>")), 1, "{rules}");
    }
    assert!(
        rules.contains("<Days>90</Days>")
            && rules.contains("<NoncurrentDays>30</NoncurrentDays>")
            && !rules.contains("Disabled"),
        "{rules}"
    );
    assert!(
        tags.contains("<Key>cost-center</Key><Value>42</Value>")
            && tags.contains("<Key>lamplighter:owner</Key>"),
        "{tags}"
    );
    let third = user.lamp(&["init", "aws", "--yes"]);
    assert!(third.code == 0 && third.err.contains("everything is ready"), "{third:?}");
}
