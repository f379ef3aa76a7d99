// Package handmade shows on real servers how hand-written locks break, and that
// dlock on the same store does not. The page docs/use/choosing-a-store.md
// explains the faults. To read along:
//
//	go test -C internal/longtest -v -run 'TwoHolders/set_nx_px' ./handmade
//
// A hand-written lock does nothing between its calls, so a contender that makes
// no call is one that is paused. For dlock in processes that are paused and
// killed, see dlock demo.
package handmade
