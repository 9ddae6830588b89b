//! The gate at its own boundary: calls in, rulings and labels out.

mod addresses;
mod common;
mod modes;
mod taint;
