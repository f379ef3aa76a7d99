// Package watches keeps the open watches of a session. It is for driver
// authors, and its use is optional.
//
// Each session has one [Set]. The session's Watch and WatchQueue arm a watch in
// the set and return it. The driver tells the set what it learns from the
// store, and the set then sends Released and ends watches as required by rules
// 6 and 13 of package driver. Drivers call those of the following methods that
// suit their store:
//
//   - [Set.Compare] compares the watches with a list of the queue. It is for
//     stores that send no notices, and for the time after a reconnect.
//   - [Set.Gone] takes a notice that a node has gone.
//   - [Set.Announced] does so if others than the store may send notices, and
//     [Set.Left] if the session has removed the node itself.
//   - [Set.Changed] takes a notice that a queue has changed.
//
// An armed watch must not miss a change (rule 6), so a driver arms the watch
// first and asks the store for the nodes afterwards. For example, in a driver
// that polls:
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
// Here look calls [Set.Mark], lists the queue, and calls [Set.Compare]. The
// session also calls it periodically for each queue returned by [Set.Queues].
package watches
