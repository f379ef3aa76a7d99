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
// Only [Config.New] is required. Each of the other hooks plays one fault. The
// cases that need a hook which the author does not provide are skipped, each
// with a line such as
//
//	rule 8 not checked: Config.CutOff is nil
//
// and named again in the summary that Run logs at its end (go test -v shows
// it). A driver that wants to be trusted sets [Config.Complete]: then no hook
// may be missing. The cases for an [Ability] that sessions do not have are
// reported as not applicable, which is no fault unless [Config.Abilities] names
// that ability.
//
// Every case is a subtest named after its rule, so that one of them can be run
// alone:
//
//	go test -run 'TestConformance/rule06/watch-of-a-node-deleted-before-arming'
//
// A failure names the rule by number and name, says what the driver did and
// what was expected, and why it matters to a lock. The subtests under "read"
// and "walk" check the abilities that have no number, and those under "locks"
// the read-write locks that users get on top of the driver. A hook that fails
// (t.Fatal, t.Error) is reported as a hook that failed, and not as a broken
// rule.
//
// Use go test -failfast while a driver is broken: a case waits long for what
// does not come, and one mistake breaks many cases. Mend the first rule that is
// reported first.
//
// Run the kit with the race detector on, and more than once: many rules are
// about things that happen at the same time. It runs in real time, one case
// after the other. Nothing is judged by how long it takes, beyond generous
// bounds, so a store may be slow and a machine busy; a case that failed and lost
// a session for no reason of its own is tried again. A driver that hangs fails
// its case with a dump of all goroutines.
//
// # Test proxies
//
// A hook usually acts on a proxy between a session and its store. The proxies
// run in the process of the test, so rule 11 counts their goroutines and
// connections, too: a proxy ends when its session has closed the connections
// through it. [Config.CutOff] says what may become of bytes on their way.
//
// Package dlocktest/faults has a connector that stands before that of any driver
// and plays what goes wrong between a client and its store, for tests of drivers
// and of applications.
package dlocktest
