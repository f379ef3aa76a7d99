package memdriver

import "iter"

// list is a doubly linked list whose links are fields of the items, so that
// adding and removing an item allocates nothing and takes constant time. The zero list is empty.
type list[T any] struct {
	root link[T]
	len  int
}

// link is an item's place in one list. The zero link is in none.
type link[T any] struct {
	prev, next *link[T]
	item       T
}

func (l *list[T]) pushBack(k *link[T], item T) {
	if l.root.next == nil {
		l.root.prev, l.root.next = &l.root, &l.root
	}
	k.item = item
	k.prev, k.next = l.root.prev, &l.root
	k.prev.next, k.next.prev = k, k
	l.len++
}

// remove takes k out of the list, if it is in.
func (l *list[T]) remove(k *link[T]) {
	if k.next == nil {
		return
	}
	k.prev.next, k.next.prev = k.next, k.prev
	*k = link[T]{}
	l.len--
}

// front returns the first item; the list must not be empty.
func (l *list[T]) front() T { return l.root.next.item }

// all returns the items in order. The one just returned may be removed
// meanwhile.
func (l *list[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		if l.len == 0 {
			return
		}
		for k := l.root.next; k != &l.root; {
			next := k.next
			if !yield(k.item) {
				return
			}
			k = next
		}
	}
}
