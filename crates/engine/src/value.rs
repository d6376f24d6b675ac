//! Values that travel from step to step.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// One lock for all: a run is one task, and a lock for each would take more room than the values.
    given: Mutex<Given>,
    nothing: Value,
}

struct Given {
    /// By slot, where its value stands, counted from one; zero as long as there is none. Small, so that all stay at hand.
    places: Vec<u32>,
    /// In the order in which they were given; the first stands for all that are nothing.
    values: Vec<Value>,
}

/// The place of `()`, which is what most steps give.
const NOTHING: u32 = 1;

impl Outputs {
    pub(crate) fn new(count: usize) -> Self {
        let nothing: Value = Arc::new(());
        Self { given: Mutex::new(Given { places: vec![0; count], values: vec![nothing.clone()] }), nothing }
    }

    /// What a step gives, as a value.
    pub(crate) fn value<T: Send + Sync + 'static>(&self, output: T) -> Value {
        if TypeId::of::<T>() == TypeId::of::<()>() { self.nothing.clone() } else { Arc::new(output) }
    }

    pub(crate) fn give(&self, slot: u32, value: Value) {
        let Given { places, values } = &mut *self.given();
        let place = &mut places[slot as usize];
        // A step ends once; were it to end twice, the first value is the one others may have seen.
        if *place == 0 {
            *place = if value.is::<()>() {
                NOTHING
            } else {
                values.push(value);
                values.len() as u32
            };
        }
    }

    /// Whether a step has given something.
    pub(crate) fn is_given(&self, slot: u32) -> bool {
        self.given().places[slot as usize] != 0
    }

    /// What is needed, if all of it has been given.
    pub(crate) fn fetch<N: Needs>(&self, needs: &N) -> Option<N::Values> {
        needs.fetch(&Fetch(&self.given()))
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Given {
    fn get<T: Send + Sync + 'static>(&self, handle: &Handle<T>) -> Option<Arc<T>> {
        let place = self.places.get(handle.index)?.checked_sub(1)?;
        self.values.get(place as usize)?.clone().downcast().ok()
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
pub struct Fetch<'a>(&'a Given);

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
