"""How the tokens of a call lie, and therefore what may attend to what; the key/value cache.

    Causal   whole sequences side by side, left- or right-padded      validation
    Prompts  the same with quicker sums                               prefill
    Decode   one new token a row, prompts shared by their samples     the sampler
    Packed   a prompt and its N samples end to end, no padding        the update

A layout's `mix` is the attention of one layer; its PIECE says how that layer's projections add up (`qwen2_jax.product`).  The
axis alphabet is that of `qwen2_jax.py`; here M is all queries that share the keys of a kv head, R the sample tokens of a packed
group."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

NEVER = float(np.finfo(np.float32).min)  # a masked score; finite, so that a row with nothing to see stays finite


def attend(q_BTHC, k_BSKC, v_BSKC, mask_BTS, kernel="einsum"):
    """Grouped-query attention; mask_BTS is True where the query may look; fp32 scores."""
    (B, T, H, C), K = q_BTHC.shape, k_BSKC.shape[2]
    if kernel != "einsum":
        o_BTHC = jax.nn.dot_product_attention(q_BTHC, k_BSKC, v_BSKC, mask=mask_BTS[:, None], implementation=kernel)
        return o_BTHC.reshape(B, T, H * C)
    q_BTKGC = q_BTHC.reshape(B, T, K, H // K, C)
    score_BKGTS = jnp.einsum("BTKGC,BSKC->BKGTS", q_BTKGC, k_BSKC, preferred_element_type=jnp.float32)
    score_BKGTS = jnp.where(mask_BTS[:, None, None], score_BKGTS * C**-0.5, NEVER)
    weight_BKGTS = jax.nn.softmax(score_BKGTS, -1).astype(q_BTHC.dtype)
    return jnp.einsum("BKGTS,BSKC->BTKGC", weight_BKGTS, v_BSKC).reshape(B, T, H * C)


def attend_part(q_BKMC, k_BKCS, v_BKSC, mask):
    """Attention over one of several key sources: (sum of mass * v, largest score, sum of mass), fp32, for `join_parts`.

    Two products that need nothing turned round.  Leading axes may be fewer."""
    score_BKMS = jnp.matmul(q_BKMC, k_BKCS, preferred_element_type=jnp.float32) * q_BKMC.shape[-1] ** -0.5
    score_BKMS = jnp.where(mask, score_BKMS, NEVER)
    top_BKM1 = jax.lax.stop_gradient(score_BKMS.max(-1, keepdims=True))  # it cancels: see join_parts
    mass_BKMS = jnp.exp(score_BKMS - top_BKM1)
    mixed_BKMC = jnp.matmul(mass_BKMS.astype(v_BKSC.dtype), v_BKSC, preferred_element_type=jnp.float32)
    return mixed_BKMC, top_BKM1, mass_BKMS.sum(-1, keepdims=True)


def join_parts(one, two):
    """One softmax over two sources, from what `attend_part` made of each."""
    top = jnp.maximum(one[1], two[1])
    a, b = jnp.exp(one[1] - top), jnp.exp(two[1] - top)
    return (one[0] * a + two[0] * b) / (one[2] * a + two[2] * b)


class Causal(NamedTuple):
    """Whole sequences side by side; keeps every key and value."""

    PIECE = 128  # whole sequences are for checks: here accuracy comes first
    mask_BT: jax.Array  # True on real tokens

    def mix(self, q_BTHC, k_BTKC, v_BTKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        T = self.mask_BT.shape[1]
        causal_TT = jnp.tril(jnp.ones((T, T), bool))
        mask_BTT = causal_TT[None] & self.mask_BT[:, None, :]
        return attend(q_BTHC, k_BTKC, v_BTKC, mask_BTT, kernel), (k_BTKC, v_BTKC)


class Prompts(Causal):
    """Causal with the sums that the other programs of training have: quicker, and no further from the update's."""

    PIECE = 0


class Decode(NamedTuple):
    """One new token a row at slot `t` of the row's own cache; the prompt's keys are stored once per prompt.

    past = (k_PKCS, v_PKSC, own_k_BKCT, own_v_BKTC), laid out for small products; keeps (own_k, own_v) with slot t written.
    All rows of a prompt look at it together, so a prompt's keys are read once a step, however many rows continue it."""

    PIECE = 0
    row_PN: jax.Array  # the row that is sample n of prompt p; any row where that sample has ended
    place_B: jax.Array  # p * N + n of each row
    mask_PS: jax.Array
    t: jax.Array

    def mix(self, q_B1HC, k_B1KC, v_B1KC, past, _kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        k_PKCS, v_PKSC, own_k, own_v = past
        (P, N), (B, _, H, C), K = self.row_PN.shape, q_B1HC.shape, own_k.shape[1]
        own_k = jax.lax.dynamic_update_slice_in_dim(own_k, k_B1KC.transpose(0, 2, 3, 1), self.t, 3)
        own_v = jax.lax.dynamic_update_slice_in_dim(own_v, v_B1KC.transpose(0, 2, 1, 3), self.t, 2)
        q_BKGC = q_B1HC.reshape(B, K, H // K, C)
        q_PKNC = q_BKGC[self.row_PN].swapaxes(1, 2).reshape(P, K, -1, C)
        shared = [y.reshape(P, K, N, H // K, -1).swapaxes(1, 2).reshape(P * N, K, H // K, -1)[self.place_B]
                  for y in attend_part(q_PKNC, k_PKCS, v_PKSC, self.mask_PS[:, None, None])]
        own = attend_part(q_BKGC, own_k, own_v, jnp.arange(own_v.shape[2]) <= self.t)
        return join_parts(shared, own).astype(q_B1HC.dtype).reshape(B, 1, H * C), (own_k, own_v)


class Packed(NamedTuple):
    """A prompt (S slots, right-padded) and its N samples end to end: Q = S + tokens of all samples (+ padding at the end).

    Projections see Q tokens and no padding; only what samples see of themselves is unpacked to (N, T)."""

    PIECE = 0
    mask_S: jax.Array  # True on the prompt's real tokens
    slot_NT: jax.Array  # index into the R = Q - S sample tokens of token t of sample n (anything where there is none)
    row_R: jax.Array  # sample and
    column_R: jax.Array  # place in it of each of the R sample tokens

    def mix(self, q_QHC, k_QKC, v_QKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        S = self.mask_S.shape[0]
        prompt, _ = Causal(self.mask_S[None]).mix(q_QHC[None, :S], k_QKC[None, :S], v_QKC[None, :S], None, kernel)
        samples = self._in_parts if kernel == "einsum" else partial(self._at_once, kernel=kernel)
        return jnp.concatenate([prompt[0], samples(q_QHC[S:], (k_QKC[:S], v_QKC[:S]), (k_QKC[S:], v_QKC[S:]))]), None

    def _in_parts(self, q_RHC, shared, own):
        """The samples' attention: to the prompt as they lie, with no copy of it; to themselves unpacked to (N, T); joined."""
        (R, H, C), K, (N, T) = q_RHC.shape, own[0].shape[1], self.slot_NT.shape
        G = H // K
        q_KMC = q_RHC.reshape(R, K, G, C).transpose(1, 2, 0, 3).reshape(K, G * R, C)
        to_prompt = [y.reshape(K, G, R, -1).transpose(2, 0, 1, 3) for y in
                     attend_part(q_KMC, shared[0].transpose(1, 2, 0), shared[1].transpose(1, 0, 2), self.mask_S)]
        q_NKMC = q_RHC[self.slot_NT].reshape(N, T, K, G, C).transpose(0, 2, 3, 1, 4).reshape(N, K, G * T, C)
        k_NKCT, v_NKTC = own[0][self.slot_NT].transpose(0, 2, 3, 1), own[1][self.slot_NT].transpose(0, 2, 1, 3)
        causal_MT = jnp.tile(jnp.tril(jnp.ones((T, T), bool)), (G, 1))
        to_own = [y.reshape(N, K, G, T, -1).transpose(0, 3, 1, 2, 4)[self.row_R, self.column_R]
                  for y in attend_part(q_NKMC, k_NKCT, v_NKTC, causal_MT)]
        return join_parts(to_prompt, to_own).astype(q_RHC.dtype).reshape(R, H * C)

    def _at_once(self, q_RHC, shared, own, kernel):
        """The same with another kernel, which takes keys of one length for all: the prompt's are copied to each sample."""
        (N, T), S = self.slot_NT.shape, self.mask_S.shape[0]
        k_NUKC, v_NUKC = (jnp.concatenate([jnp.broadcast_to(y_SKC, (N, *y_SKC.shape)), z_RKC[self.slot_NT]], 1)
                          for y_SKC, z_RKC in zip(shared, own, strict=True))  # U = S + T
        mask_TU = jnp.concatenate([jnp.broadcast_to(self.mask_S, (T, S)), jnp.tril(jnp.ones((T, T), bool))], 1)
        mask_NTU = jnp.broadcast_to(mask_TU, (N, *mask_TU.shape))
        return attend(q_RHC[self.slot_NT], k_NUKC, v_NUKC, mask_NTU, kernel)[self.row_R, self.column_R]
