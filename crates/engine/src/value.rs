//! Values that travel from step to step.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

/// A value of unknown type.
pub(crate) type Value = Arc<dyn Any + Send + Sync>;

/// Tells the handles of one graph from those of another.
pub(crate) type Owner = Arc<()>;

/// The promise of a value: what a step or gate of this graph will give.
///
/// It can only be had by adding that step, so that asking for what nobody gives does not compile.
pub struct Handle<T> {
    pub(crate) index: usize,
    pub(crate) owner: Owner,
    pub(crate) kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self { index: self.index, owner: self.owner.clone(), kind: PhantomData }
    }
}

impl<T> std::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle({})", self.index)
    }
}

/// What has been given so far.
pub(crate) struct Outputs {
    given: Vec<OnceLock<Value>>,
}

impl Outputs {
    pub(crate) fn new(count: usize) -> Self {
        Self { given: (0..count).map(|_| OnceLock::new()).collect() }
    }

    pub(crate) fn give(&self, index: usize, value: Value) {
        // A step ends once; were it to end twice, the first value is the one others may have seen.
        let _ = self.given[index].set(value);
    }

    fn get<T: Send + Sync + 'static>(&self, handle: &Handle<T>) -> Option<Arc<T>> {
        self.given.get(handle.index)?.get()?.clone().downcast().ok()
    }
}

/// One thing needed: the value of a handle, or of each of several.
pub trait Need {
    /// What it comes to.
    type Value: Send + Sync + 'static;
    #[doc(hidden)]
    fn sources(&self, found: &mut Vec<(usize, Arc<()>)>);
    #[doc(hidden)]
    fn fetch(&self, outputs: &Fetch<'_>) -> Option<Self::Value>;
}

/// Where needs are fetched from.
#[doc(hidden)]
pub struct Fetch<'a>(pub(crate) &'a Outputs);

impl<T: Send + Sync + 'static> Need for Handle<T> {
    type Value = Arc<T>;

    fn sources(&self, found: &mut Vec<(usize, Arc<()>)>) {
        found.push((self.index, self.owner.clone()));
    }

    fn fetch(&self, outputs: &Fetch<'_>) -> Option<Arc<T>> {
        outputs.0.get(self)
    }
}

impl<T: Send + Sync + 'static> Need for Vec<Handle<T>> {
    type Value = Vec<Arc<T>>;

    fn sources(&self, found: &mut Vec<(usize, Arc<()>)>) {
        self.iter().for_each(|handle| handle.sources(found));
    }

    fn fetch(&self, outputs: &Fetch<'_>) -> Option<Vec<Arc<T>>> {
        self.iter().map(|handle| handle.fetch(outputs)).collect()
    }
}

/// All that a step needs: a tuple of handles, or of lists of handles.
pub trait Needs: Send + Sync + 'static {
    /// The tuple of what they come to.
    type Values: Send + Sync + 'static;
    #[doc(hidden)]
    fn sources(&self) -> Vec<(usize, Arc<()>)>;
    #[doc(hidden)]
    fn fetch(&self, outputs: &Fetch<'_>) -> Option<Self::Values>;
}

macro_rules! needs {
    ($($need:ident . $index:tt),*) => {
        impl<$($need: Need + Send + Sync + 'static),*> Needs for ($($need,)*) {
            type Values = ($($need::Value,)*);

            fn sources(&self) -> Vec<(usize, Arc<()>)> {
                #[allow(unused_mut, reason = "a step may need nothing")]
                let mut found = Vec::new();
                $(self.$index.sources(&mut found);)*
                found
            }

            #[allow(unused_variables, reason = "a step may need nothing")]
            fn fetch(&self, outputs: &Fetch<'_>) -> Option<Self::Values> {
                Some(($(self.$index.fetch(outputs)?,)*))
            }
        }
    };
}

needs!();
needs!(A.0);
needs!(A.0, B.1);
needs!(A.0, B.1, C.2);
needs!(A.0, B.1, C.2, D.3);
needs!(A.0, B.1, C.2, D.3, E.4);
needs!(A.0, B.1, C.2, D.3, E.4, F.5);
