// Package calls helps driver authors manage a session's calls in flight. Its
// use is optional. The rules mentioned below are those of package driver.
//
//   - [Do] calls a function that takes no context, such as one of a client library.
//     It returns promptly when its own context ends, even if the function is still
//     running: rule 10. A [Group] limits the number of such calls.
//   - A [Gate] ends the calls in flight when the session is closed, and waits for
//     them: rule 11. It can also limit how long each call takes: rule 10.
package calls
