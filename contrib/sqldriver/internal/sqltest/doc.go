// Package sqltest has what the tests of the drivers for SQL databases share:
//
//   - [Refused] checks the error if the driver or the server refuses a session.
//   - [Holders] checks that a lock never has two holders and that its tokens
//     rise. [KilledUnderLoad] does so while a test kills the server.
//     [SaysWhyItEnded] checks the error of a lock that is lost because the
//     server was killed.
//   - [LockedRows] checks what becomes of the locks of dead sessions while an
//     operator's transaction has locked rows.
//   - [Counter] counts the requests of a session.
//   - [Unlock] and [Count] are for tests of locks that also run on slow
//     machines.
//   - [SilentConnection] makes one connection of a session silent during a
//     request. [ForgottenConnections] makes all of them silent. [SilentServer]
//     checks the error of Connect if the server never answers, and
//     [SilentConnect] that connecting has a time limit.
package sqltest
