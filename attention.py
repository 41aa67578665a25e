"""Layouts: how the tokens of a call are arranged and which may attend to which; the key/value cache.

    Causal   whole sequences side by side, left- or right-padded      validation
    Prompts  the same with faster, less accurate projections          prefill
    Decode   one new token a row; samples share their prompt's keys   the sampler
    Packed   a prompt and its N samples end to end                    the update

A layout's `mix` is the attention of one layer; its PIECE is that of `qwen2_jax.product` for the layer's projections.  The axis
letters are listed in qwen2_jax.py."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

NEVER = float(np.finfo(np.float32).min)  # score of a masked key; finite, so that a query that sees no key stays finite


def attend(q_BTHC, k_BUKC, v_BUKC, mask_BTU, kernel="einsum"):
    """Grouped-query attention, (B, T, H * C); mask_BTU is True where the query may look; fp32 scores."""
    (B, T, H, C), K = q_BTHC.shape, k_BUKC.shape[2]
    if kernel != "einsum":
        o_BTHC = jax.nn.dot_product_attention(q_BTHC, k_BUKC, v_BUKC, mask=mask_BTU[:, None], implementation=kernel)
        return o_BTHC.reshape(B, T, H * C)
    q_BTKGC = q_BTHC.reshape(B, T, K, H // K, C)
    score_BKGTU = jnp.einsum("BTKGC,BUKC->BKGTU", q_BTKGC, k_BUKC, preferred_element_type=jnp.float32)
    score_BKGTU = jnp.where(mask_BTU[:, None, None], score_BKGTU * C**-0.5, NEVER)
    weight_BKGTU = jax.nn.softmax(score_BKGTU, -1).astype(q_BTHC.dtype)
    return jnp.einsum("BKGTU,BUKC->BTKGC", weight_BKGTU, v_BUKC).reshape(B, T, H * C)


def attend_part(q_BKXC, k_BKCU, v_BKUC, mask):
    """Attention to one of several groups of keys: (sum of mass * v, largest score, sum of mass), fp32, for `join_parts`.

    Two matrix products without a transpose.  K may be the first axis."""
    score_BKXU = jnp.matmul(q_BKXC, k_BKCU, preferred_element_type=jnp.float32) * q_BKXC.shape[-1] ** -0.5
    score_BKXU = jnp.where(mask, score_BKXU, NEVER)
    top_BKX1 = jax.lax.stop_gradient(score_BKXU.max(-1, keepdims=True))  # cancels in join_parts
    mass_BKXU = jnp.exp(score_BKXU - top_BKX1)
    mixed_BKXC = jnp.matmul(mass_BKXU.astype(v_BKUC.dtype), v_BKUC, preferred_element_type=jnp.float32)
    return mixed_BKXC, top_BKX1, mass_BKXU.sum(-1, keepdims=True)


def join_parts(one, two):
    """One softmax over two groups of keys, from the results of `attend_part` for each."""
    top = jnp.maximum(one[1], two[1])
    a, b = jnp.exp(one[1] - top), jnp.exp(two[1] - top)
    return (one[0] * a + two[0] * b) / (one[2] * a + two[2] * b)


class Causal(NamedTuple):
    """Whole sequences side by side; keeps every key and value."""

    PIECE = 128  # for checks, where accuracy matters more than speed
    mask_BT: jax.Array  # True on real tokens

    def mix(self, q_BTHC, k_BTKC, v_BTKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        T = self.mask_BT.shape[1]
        causal_TT = jnp.tril(jnp.ones((T, T), bool))
        mask_BTT = causal_TT[None] & self.mask_BT[:, None, :]
        return attend(q_BTHC, k_BTKC, v_BTKC, mask_BTT, kernel), (k_BTKC, v_BTKC)


class Prompts(Causal):
    """Causal with the projections of `Decode` and `Packed`: faster, and rounded as in the update."""

    PIECE = 0


class Decode(NamedTuple):
    """One new token a row, at place t of the row's own cache; a prompt's keys are stored once for all its rows.

    past = (k_PKCS, v_PKSC, own_k_BKCT, own_v_BKTC), laid out for small products; keeps (own_k, own_v) with place t written.
    The rows of a prompt attend to it together, so its keys are read once a step, however many rows there are."""

    PIECE = 0
    row_PN: jax.Array  # row of sample n of prompt p; any row if the sample has ended
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
        q_PKXC = q_BKGC[self.row_PN].swapaxes(1, 2).reshape(P, K, -1, C)
        shared = [y.reshape(P, K, N, H // K, -1).swapaxes(1, 2).reshape(P * N, K, H // K, -1)[self.place_B]
                  for y in attend_part(q_PKXC, k_PKCS, v_PKSC, self.mask_PS[:, None, None])]
        own = attend_part(q_BKGC, own_k, own_v, jnp.arange(own_v.shape[2]) <= self.t)
        return join_parts(shared, own).astype(q_B1HC.dtype).reshape(B, 1, H * C), (own_k, own_v)


class Packed(NamedTuple):
    """A prompt (S slots, right-padded) and its N samples end to end: Q = S + Y tokens, Y padded at the end.

    Samples are unpacked to (N, T) only for their attention to themselves."""

    PIECE = 0
    mask_S: jax.Array  # True on the prompt's real tokens
    index_NT: jax.Array  # which of the Y sample tokens is token t of sample n; anything beyond the sample's end
    sample_Y: jax.Array  # the sample of each of the Y tokens
    t_Y: jax.Array  # and its place t in that sample

    def mix(self, q_QHC, k_QKC, v_QKC, past, kernel):
        """(attention's output, kept) of one layer's queries, keys and values."""
        S = self.mask_S.shape[0]
        prompt, _ = Causal(self.mask_S[None]).mix(q_QHC[None, :S], k_QKC[None, :S], v_QKC[None, :S], None, kernel)
        samples = self._in_parts if kernel == "einsum" else partial(self._at_once, kernel=kernel)
        return jnp.concatenate([prompt[0], samples(q_QHC[S:], (k_QKC[:S], v_QKC[:S]), (k_QKC[S:], v_QKC[S:]))]), None

    def _in_parts(self, q_YHC, shared, own):
        """The samples' attention: to the prompt without copying it, to themselves unpacked to (N, T); then joined."""
        (Y, H, C), K, (N, T) = q_YHC.shape, own[0].shape[1], self.index_NT.shape
        G = H // K
        q_KXC = q_YHC.reshape(Y, K, G, C).transpose(1, 2, 0, 3).reshape(K, G * Y, C)
        to_prompt = [y.reshape(K, G, Y, -1).transpose(2, 0, 1, 3) for y in
                     attend_part(q_KXC, shared[0].transpose(1, 2, 0), shared[1].transpose(1, 0, 2), self.mask_S)]
        q_NKXC = q_YHC[self.index_NT].reshape(N, T, K, G, C).transpose(0, 2, 3, 1, 4).reshape(N, K, G * T, C)
        k_NKCT, v_NKTC = own[0][self.index_NT].transpose(0, 2, 3, 1), own[1][self.index_NT].transpose(0, 2, 1, 3)
        causal_XT = jnp.tile(jnp.tril(jnp.ones((T, T), bool)), (G, 1))
        to_own = [y.reshape(N, K, G, T, -1).transpose(0, 3, 1, 2, 4)[self.sample_Y, self.t_Y]
                  for y in attend_part(q_NKXC, k_NKCT, v_NKTC, causal_XT)]
        return join_parts(to_prompt, to_own).astype(q_YHC.dtype).reshape(Y, H * C)

    def _at_once(self, q_YHC, shared, own, kernel):
        """The same for kernels that need the keys of each row side by side: the prompt's keys are copied to every sample."""
        (N, T), S = self.index_NT.shape, self.mask_S.shape[0]
        k_NUKC, v_NUKC = (jnp.concatenate([jnp.broadcast_to(y_SKC, (N, *y_SKC.shape)), z_YKC[self.index_NT]], 1)
                          for y_SKC, z_YKC in zip(shared, own, strict=True))  # U = S + T
        mask_TU = jnp.concatenate([jnp.broadcast_to(self.mask_S, (T, S)), jnp.tril(jnp.ones((T, T), bool))], 1)
        mask_NTU = jnp.broadcast_to(mask_TU, (N, *mask_TU.shape))
        return attend(q_YHC[self.index_NT], k_NUKC, v_NUKC, mask_NTU, kernel)[self.sample_Y, self.t_Y]
