// Package dlocktest is the conformance kit for drivers. It checks every rule of
// the contract in package driver, and the guarantees of the locks on top, on
// any store.
//
// The author of a driver writes one test. Its Config says how to reach the
// store and how to play faults on it:
//
//	func TestConformance(t *testing.T) {
//		dlocktest.Run(t, dlocktest.Config{
//			New: func(t *testing.T) driver.Connector {
//				server := startServer(t) // or a new, empty namespace of one
//				dsn := server.DSN() + "?session_timeout=2s"
//				c, err := mydriver.Driver{}.OpenConnector(dsn)
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
// cases that need a hook which the Config lacks are skipped, each with a line
// such as
//
//	rule 8 not checked: Config.CutOff is nil
//
// Run logs a summary at its end, rule by rule, which names these hooks again
// (go test -v shows it). With [Config.Complete] a missing hook is a failure:
// set it when all hooks are there. Some cases need an [Ability] that a driver
// may leave out. For a driver without it they are reported as not applicable.
// That is a failure only if [Config.Abilities] names the ability.
//
// Every case is a subtest below its rule, so that one case can be run alone:
//
//	go test -run 'TestConformance/rule06/watch-of-a-node-deleted-before-arming'
//
// A failure names the rule by number and name. It says what the driver did,
// what was expected, and which harm the fault does to a lock. The subtests
// under "read", "walk" and "describe" check methods without a rule number. Those
// under "locks" check the read-write locks that applications use on top of the
// driver. A hook that calls t.Fatal or t.Error is reported as a hook that
// failed, and not as a broken rule. So is a hook that is seen to have no effect.
//
// Use go test -failfast while a driver is broken. Without it the test takes
// long, because one mistake breaks many cases, and a broken case may wait until
// its time limit. Begin with the first rule that is reported as broken.
//
// Run the kit with the race detector, and more than once: many rules are about
// calls at the same time. The kit runs in real time, one case after the other.
// The bounds on times are generous, so a store may be slow and a machine busy.
// If a case fails, and has lost a session that it did not end itself, the kit
// runs the case again. A driver that hangs fails its case, with the stacks of
// all goroutines.
//
// # Test proxies
//
// A hook usually acts on a proxy between a session and its store. The proxies
// run in the process of the test, so rule 11 counts their goroutines and
// connections as well. A proxy therefore has to end when its session has closed
// the connections through it. [Config.CutOff] says what may become of bytes
// that are on their way.
//
// Package [github.com/dlock-go/dlock/driver/faults] has a connector that wraps
// the connector of any driver and plays faults between a client and its store.
// It is for tests of drivers and of applications.
package dlocktest
