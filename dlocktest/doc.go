// Package dlocktest proves drivers: it checks every rule of the contract in
// package driver, and the guarantees of the locks on top, against any store.
//
// A driver's author writes one test and fills in what the store can be made
// to do:
//
//	func TestConformance(t *testing.T) {
//		dlocktest.Run(t, dlocktest.Config{
//			New: func(t *testing.T) driver.Connector {
//				server := startServer(t) // or a new, empty namespace of one
//				c, err := mydriver.Driver{}.OpenConnector(server.DSN() + "?session_timeout=2s")
//				if err != nil {
//					t.Fatal(err)
//				}
//				return c
//			},
//			SessionTimeout: 2 * time.Second,
//			CutOff: func(t *testing.T, s driver.Session) (heal func()) {
//				proxy := proxyOf(s)
//				proxy.Stop()
//				return proxy.Go
//			},
//		})
//	}
//
// Only [Config.New] is required. Each of the other functions plays one fault,
// and the cases that need a fault which the author does not provide are
// skipped, each with a line such as
//
//	rule 8 not checked: Config.CutOff is nil
//
// and named again in the summary that Run logs at its end (go test -v shows
// it). A driver that wants to be trusted sets [Config.Complete]: then nothing
// may be missing. Rules of optional interfaces that the driver does not
// implement are reported as not applicable, which is no fault.
//
// Every case is a subtest named after its rule, so that one of them can be run
// alone:
//
//	go test -run 'TestConformance/rule06/watch-of-a-node-deleted-before-arming'
//
// A failure names the rule by number and name, says what the driver did and
// what was expected, and why it matters to a lock. The subtests under "read"
// and "walk" check the optional interfaces that have no number, and those under
// "locks" the read-write locks that users get on top of the driver.
//
// Run the kit with the race detector on, and more than once: many rules are
// about what happens when things meet. It runs in real time, one case after the
// other. Nothing is judged by how long it takes, beyond generous bounds, so a
// store may be slow and a machine busy; a case that failed and lost a session
// for no reason of its own is tried again. A driver that hangs fails its case
// with a dump of all goroutines.
//
// # Faults
//
// [Faults] stands before any driver's connector and plays what goes wrong between a client and its
// store, for tests of drivers and of applications: see [NewFaults] and [Rates].
package dlocktest
