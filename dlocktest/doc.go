// Package dlocktest is the conformance kit for drivers. It checks every rule of
// the contract in package driver, and the locks of package dlock on top of the
// driver, on any store.
//
// Driver authors write one test. Its Config says how to reach the store and how
// to inject faults into it:
//
//	func TestConformance(t *testing.T) {
//		dlocktest.Run(t, dlocktest.Config{
//			New: func(t *testing.T) driver.Connector {
//				server := startServer(t) // or a new namespace
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
// Only [Config.New] is required. Each of the other hooks injects one kind of
// fault. Cases that need a missing hook are skipped, and Run logs a summary at
// its end (shown by go test -v). With [Config.Complete] a missing hook is a
// failure. Some cases need an [Ability] that a driver may lack, which is a
// failure only if [Config.Abilities] names it.
//
// Every case is a subtest of its rule, so that it can be run alone:
//
//	go test -run 'TestConformance/rule06/watch-of-a-node-deleted-before-arming'
//
// A failure names the rule, what the driver did, what was expected, and how the
// fault would harm a lock. If a hook calls t.Fatal or t.Error, or is seen to
// have no effect, Run reports the hook and not a broken rule.
//
// Use go test -failfast while a driver is broken, and begin with the first rule
// that is reported as broken. One mistake breaks many cases, and a broken case
// may wait for its time limit.
//
// Run the kit with the race detector, and more than once, because many rules
// are about concurrent calls. The kit runs in real time, one case after the
// other unless [Config.Parallel] is set. A case that fails and has lost a
// session that it did not end itself is run again.
//
// # Test proxies
//
// A hook usually acts on a proxy between a session and its store. The proxies
// run in the test process, so rule 11 counts their goroutines and connections
// as well. A proxy must therefore end when its session has closed the
// connections through it. See [Config.CutOff] for what may become of bytes in
// flight.
//
// Package [github.com/dlock-go/dlock/driver/faults] injects faults in front of
// any driver.
package dlocktest
