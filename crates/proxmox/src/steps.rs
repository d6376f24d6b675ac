//! What castle wants of Proxmox: an image to clone from, guests that are as the file says, guests that run, and their end.

mod gone;
mod ground;
mod guest;
mod image;
mod power;
mod shut;
mod wanted;

pub use gone::{Reach, Remains, RemoveDownloads, RemoveGuest};
pub use ground::{Ground, Guests};
pub use guest::{MakeGuest, Sight, Standing, There};
pub use image::{DropOldImages, Found, Image, MakeImage, Stage, Template};
pub use power::{Power, RunGuest};
pub use shut::ShutGuest;
pub use wanted::{Hardware, Wanted};
