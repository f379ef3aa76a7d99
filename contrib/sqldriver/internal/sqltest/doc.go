// Package sqltest has what the tests of the drivers for SQL databases share:
//
//   - [Store] is the database of a test, for the conformance kit and for other
//     tests that inject faults.
//   - [Refused] checks the error if the driver or the server refuses a session.
//   - [Loss] checks that a lock has one holder although its database loses data,
//     and [Graces] which session's grace applies.
//   - [LockedRows] checks what becomes of the locks of dead sessions while an
//     operator's transaction has locked rows, and [ByHand] what sessions notice
//     of an operator's statements.
//   - [Unlock] is for tests of locks that also run on slow machines.
//   - [SilentConnection] makes one connection of a session silent during a
//     request. [ForgottenConnections] makes all of them silent. [SilentServer]
//     checks the error of Connect if the server never answers, and
//     [SilentConnect] that connecting has a time limit.
package sqltest
