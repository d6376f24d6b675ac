//! What castle wants of Proxmox: an image to clone from, guests that are as the file says, guests that run, guests of others that it adopts, and their end.

mod adopt;
mod begun;
mod downloads;
mod gone;
mod ground;
mod guest;
mod image;
mod power;
mod shut;
mod vanished;
mod wanted;

pub use adopt::{Candidate, MarkGuest, Unmarked, candidate, hardware_addresses};
pub use begun::{BEGUN_TAG, MarkBegun, Noted};
pub use downloads::{DownloadPlace, Downloads, RemoveDownloads, Unseen};
pub use gone::{Reach, Remains, Removal, RemoveGuest, unprotect};
pub use ground::{Ground, Guests, Record, cleared, stands, unstick};
pub use guest::{MakeGuest, Making, Sight, Standing, There, irreplaceable};
pub use image::{DropOldImages, FetchImage, Found, Image, Imaging, MakeImage, Stage, Template};
pub use power::{Power, RunGuest};
pub use shut::ShutGuest;
pub use vanished::vanished;
pub use wanted::{Hardware, Wanted};
