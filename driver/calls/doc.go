// Package calls helps authors of drivers with the calls in flight of a session. It is
// not part of the contract.
//
//   - [Do] calls a function of a client library that takes no context, and returns
//     promptly when the context ends: rule 10. A [Group] limits the number of such
//     calls.
//   - A [Gate] ends the calls in flight when the session is closed, and waits for
//     them: rule 11.
package calls
