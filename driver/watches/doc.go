// Package watches keeps the open watches of a session. It helps authors of
// drivers. A driver need not use it.
//
// A session has one [Set]. The session's Watch and WatchQueue arm a watch in the
// set and return it. The driver tells the set what it learns from the store. The
// set then sends Released and ends watches as rules 6 and 13 of package driver
// demand. A driver uses those of these three methods that suit its store:
//
//   - [Set.Look] compares the watches with a list of the queue. It is for a store
//     that sends no notices, and for the time after a reconnect.
//   - [Set.Gone] takes a notice that a node has gone.
//   - [Set.Changed] takes a notice that a queue has changed.
//
// Once a watch is armed, it must not miss a change (rule 6). So a driver arms the
// watch first, and asks the store for the nodes after that. For example, in a
// driver that polls:
//
//	func (s *session) Watch(ctx context.Context, queue string,
//		p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
//		w := s.watches.Arm(queue, p, ahead...)
//		if err := s.look(ctx, queue); err != nil {
//			w.Stop()
//			return driver.Watch{}, err
//		}
//		return w, nil
//	}
//
// The method look of this driver calls [Set.Look] with a list of the queue. The
// session also calls look again and again, for each queue that [Set.Queues]
// returns.
package watches
