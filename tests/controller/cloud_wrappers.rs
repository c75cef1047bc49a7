//! Wrappers of the false cloud: each answers a few calls itself and passes the others on.
//!
//! All other calls have the default of the port, as for a cloud that lacks them.

/// `before_the_cloud!(Type passes on [names] { its own methods })`; the cloud behind it is its
/// field `inner`.
macro_rules! before_the_cloud {
    ($type:ident passes on [$($name:ident)*] { $($own:tt)* }) => {
        before_the_cloud!(@ $type { $($own)* } { } $($name)*);
    };
    (@ $type:ident { $($own:tt)* } { $($passed:tt)* }) => {
        #[async_trait::async_trait]
        impl lamplighter::ports::Cloud for $type { $($passed)* $($own)* }
    };
    (@ $type:ident $own:tt { $($passed:tt)* } regions $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn regions(&self) -> Result<Vec<lamplighter::market::Region>, lamplighter::ports::CloudError> { self.inner.regions().await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } supply $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn supply(&self, machine: &lamplighter::job::MachineSpec)
                -> Result<lamplighter::market::Supply, lamplighter::ports::CloudError> { self.inner.supply(machine).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } launch $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn launch(&self, plan: &lamplighter::job::Plan) -> Result<String, lamplighter::ports::CloudError> { self.inner.launch(plan).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } describe $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn describe(&self, owner: &str, region: &lamplighter::market::Region)
                -> Result<Vec<lamplighter::instance::InstanceView>, lamplighter::ports::CloudError> { self.inner.describe(owner, region).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } terminate $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn terminate(&self, machine: &lamplighter::instance::MachineRef)
                -> Result<(), lamplighter::ports::CloudError> { self.inner.terminate(machine).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } interrupt $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn interrupt(&self, machine: &lamplighter::instance::MachineRef, notice: lamplighter::market::Span)
                -> Result<(), lamplighter::ports::CloudError> { self.inner.interrupt(machine, notice).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } raise_kill_at $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn raise_kill_at(&self, machine: &lamplighter::instance::MachineRef, kill_at: jiff::Timestamp)
                -> Result<(), lamplighter::ports::CloudError> { self.inner.raise_kill_at(machine, kill_at).await }
        } $($name)*);
    };
    (@ $type:ident $own:tt { $($passed:tt)* } release $($name:ident)*) => {
        before_the_cloud!(@ $type $own { $($passed)*
            async fn release(&self, machine: &lamplighter::instance::MachineRef)
                -> Result<(), lamplighter::ports::CloudError> { self.inner.release(machine).await }
        } $($name)*);
    };
}

pub(super) use before_the_cloud;
