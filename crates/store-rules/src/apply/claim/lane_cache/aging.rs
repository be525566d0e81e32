//! A map that forgets what was put into it first.

use std::collections::HashMap;
use std::hash::Hash;

/// Entries in two halves: when the younger half is full, it becomes the older one, and what that had
/// is forgotten.
#[derive(Debug)]
pub(super) struct Aging<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Aging<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> Aging<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// Returns what is to be changed, which is young again for that.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.young.insert(key, value);
        }
        self.young.get_mut(key)
    }

    /// As [`Self::get_mut`], with an empty one if there is none.
    pub(super) fn entry(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let old = self.old.remove(&key);
        self.young.entry(key).or_insert_with(|| old.unwrap_or_default())
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        self.young.insert(key, value);
    }

    pub(super) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Forgets the oldest if there are more than `most`. Not at any other time: what a batch has put
    /// in is there until its end.
    pub(super) fn age(&mut self, most: usize) {
        if self.young.len() > most / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_what_is_changed_is_young_again() {
        let mut map: Aging<u32, u32> = Aging::default();
        for n in 0..1_000 {
            map.insert(n, n);
            *map.entry(7) += 1;
            map.age(100);
            assert!(map.len() <= 102);
        }
        assert!(map.get(&7).is_some_and(|value| *value >= 1_000));
        assert_eq!((map.get(&999), map.get(&960), map.get(&800)), (Some(&999), Some(&960), None));
        map.remove(&999);
        assert!(map.get(&999).is_none() && map.get_mut(&960).is_some());
    }
}
